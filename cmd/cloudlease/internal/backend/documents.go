package backend

import (
	"fmt"
	"strings"
)

// Forms implements Backend.
func (d *dynamo) Forms() []string { return []string{Policy, Terraform, CloudFormation} }

// Document implements Backend.
func (d *dynamo) Document(form string) (string, error) {
	region := d.region
	if region == "" {
		region = "REGION"
	}
	r := strings.NewReplacer("@TABLE@", d.table, "@REGION@", region)
	switch form {
	case Policy:
		return r.Replace(dynamoPolicy), nil
	case Terraform:
		return r.Replace(dynamoTerraform), nil
	case CloudFormation:
		return r.Replace(dynamoCloudFormation), nil
	}
	return "", noSuchForm(d, form)
}

// dynamoPolicy is for who runs commands under locks and operates them; the first statement alone suffices for run.
const dynamoPolicy = `{
  "Version": "2012-10-17",
  "Statement": [
    {
      "Sid": "Locker",
      "Effect": "Allow",
      "Action": ["dynamodb:GetItem", "dynamodb:UpdateItem"],
      "Resource": "arn:aws:dynamodb:@REGION@:*:table/@TABLE@"
    },
    {
      "Sid": "ListAndDoctor",
      "Effect": "Allow",
      "Action": ["dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"],
      "Resource": "arn:aws:dynamodb:@REGION@:*:table/@TABLE@"
    }
  ]
}
`

const dynamoTerraform = `resource "aws_dynamodb_table" "locks" {
  name         = "@TABLE@"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "name"

  attribute {
    name = "name"
    type = "S"
  }

  # No ttl block for "ttl" or "expires": a lock's item carries its token. "purge" is for records alone.
  ttl {
    attribute_name = "purge"
    enabled        = true
  }

  deletion_protection_enabled = true
}

resource "aws_iam_policy" "locker" {
  name = "@TABLE@-locker"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["dynamodb:GetItem", "dynamodb:UpdateItem"]
      Resource = aws_dynamodb_table.locks.arn
    }]
  })
}
`

const dynamoCloudFormation = `Resources:
  Locks:
    Type: AWS::DynamoDB::Table
    DeletionPolicy: Retain
    UpdateReplacePolicy: Retain
    Properties:
      TableName: "@TABLE@"
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions:
        - AttributeName: name
          AttributeType: S
      KeySchema:
        - AttributeName: name
          KeyType: HASH
      # Never "ttl" or "expires": a lock's item carries its token. "purge" is for records alone.
      TimeToLiveSpecification:
        AttributeName: purge
        Enabled: true
      DeletionProtectionEnabled: true
  Locker:
    Type: AWS::IAM::ManagedPolicy
    Properties:
      PolicyDocument:
        Version: "2012-10-17"
        Statement:
          - Effect: Allow
            Action: ["dynamodb:GetItem", "dynamodb:UpdateItem"]
            Resource: !GetAtt Locks.Arn
`

// Forms implements Backend.
func (a *azure) Forms() []string { return []string{Policy, Terraform} }

// Document implements Backend.
func (a *azure) Document(form string) (string, error) {
	r := strings.NewReplacer("@ACCOUNT@", a.account, "@CONTAINER@", a.container)
	switch form {
	case Policy:
		return r.Replace(azurePolicy), nil
	case Terraform:
		return r.Replace(azureTerraform), nil
	}
	return "", noSuchForm(a, form)
}

// azurePolicy is a custom role without the deletion that the built-in one includes. The library never deletes a blob.
const azurePolicy = `{
  "Name": "cloudlease locker (@ACCOUNT@/@CONTAINER@)",
  "Description": "Takes, renews, releases and operates locks in one container. Built-in alternative: Storage Blob Data Contributor.",
  "IsCustom": true,
  "Actions": [],
  "DataActions": [
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write"
  ],
  "AssignableScopes": [
    "/subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Storage/storageAccounts/@ACCOUNT@"
  ]
}
`

const azureTerraform = `data "azurerm_storage_account" "locks" {
  name                = "@ACCOUNT@"
  resource_group_name = "GROUP"
}

resource "azurerm_storage_container" "locks" {
  name                  = "@CONTAINER@"
  storage_account_id    = data.azurerm_storage_account.locks.id
  container_access_type = "private"
}

resource "azurerm_role_assignment" "locker" {
  scope                = azurerm_storage_container.locks.id
  role_definition_name = "Storage Blob Data Contributor"
  principal_id         = "PRINCIPAL" # who locks
}
`

// Usage explains the URLs of all kinds of places, for help texts.
func Usage() string {
	return fmt.Sprintf(`The store is given with --store or in %s:

  dynamodb://TABLE?region=R   credentials as the AWS CLI finds them
      &endpoint=URL           an engine that stands in for DynamoDB
      &profile=P              a profile of ~/.aws/config
      &home=R                 the table has replicas, and all who lock use this region
  azblob://ACCOUNT/CONTAINER  AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY,
                              AZURE_STORAGE_SAS_TOKEN, or an identity (az login)
      ?prefix=P               begins the names of the blobs; default cloudlease/
      &endpoint=URL           the account's blob service in another cloud, or an engine
      &tokens=metadata        the account has no page blobs (hierarchical namespace,
                              premium block blobs)
  consul://HOST:8500/PREFIX   CONSUL_HTTP_TOKEN, CONSUL_CACERT, ... as consul reads them
      ?scheme=https           how the agent is spoken to
      &dc=D                   another datacenter than the agent's
      &min-ttl=D              the agents' session_ttl_min, if it is not 10s
      &node=N                 a node of the catalog that the sessions belong to

A store's URL carries no credential; one that does is refused.`, Variable)
}
