// The settlement job of functions/azure with its lock, on Azure Functions. docs/deploy-azure.md says what this makes and why.
// UNTRIED: no Azure was at hand. It was parsed, and its properties were compared with the service's models.

targetScope = 'resourceGroup'

@description('Where everything is made.')
param location string = resourceGroup().location

@description('Begins the names. Storage accounts get it with a suffix, and take 24 characters.')
@minLength(3)
@maxLength(10)
param name string = 'settle'

@description('Whom the alerts write to.')
param alertEmail string

@description('How long logs are kept, in days.')
@minValue(30)
@maxValue(730)
param logDays int = 30

@description('How long a dead run keeps the lock: 15s to 60s. Azure documents up to a minute more.')
param leaseTtl string = '30s'

@description('at-least-once, or at-most-once where a run that may have begun must not be repeated.')
@allowed(['at-least-once', 'at-most-once'])
param leasePolicy string = 'at-least-once'

var suffix = uniqueString(resourceGroup().id)

// What locks, payments and results are kept in. ZRS writes to three zones before it answers, and has no copy elsewhere to
// fail over to: a copy that lacks the newest writes would let two hold one lock.
resource data 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: '${name}data${take(suffix, 10)}'
  location: location
  sku: { name: 'Standard_ZRS' }
  kind: 'StorageV2'
  properties: {
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    allowCrossTenantReplication: false
    defaultToOAuthAuthentication: true
  }
}

// No versioning: each grant of a lock would leave a version.
resource dataBlobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: data
  name: 'default'
  properties: {
    isVersioningEnabled: false
    deleteRetentionPolicy: { enabled: true, days: 14 }
    containerDeleteRetentionPolicy: { enabled: true, days: 14 }
  }
}

resource locks 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: dataBlobs
  name: 'locks'
  properties: { publicAccess: 'None' }
}

resource payments 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: dataBlobs
  name: 'payments'
  properties: { publicAccess: 'None' }
}

resource results 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: dataBlobs
  name: 'results'
  properties: { publicAccess: 'None' }
}

// The host's own: the deployed package, the timer's monitor, the host's leases. It needs wide rights, so it is an account apart.
resource host 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: '${name}host${take(suffix, 10)}'
  location: location
  sku: { name: 'Standard_LRS' }
  kind: 'StorageV2'
  properties: {
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    allowCrossTenantReplication: false
    defaultToOAuthAuthentication: true
  }
}

resource hostBlobs 'Microsoft.Storage/storageAccounts/blobServices@2023-05-01' = {
  parent: host
  name: 'default'
}

resource package 'Microsoft.Storage/storageAccounts/blobServices/containers@2023-05-01' = {
  parent: hostBlobs
  name: 'package'
  properties: { publicAccess: 'None' }
}

resource logs 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: '${name}-logs'
  location: location
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: logDays
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: '${name}-insights'
  location: location
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: logs.id
    DisableLocalAuth: true
  }
}

resource plan 'Microsoft.Web/serverfarms@2024-04-01' = {
  name: '${name}-plan'
  location: location
  kind: 'functionapp'
  sku: { name: 'FC1', tier: 'FlexConsumption' }
  properties: { reserved: true }
}

// The lock keeps runs apart, not the number of instances.
resource app 'Microsoft.Web/sites@2024-04-01' = {
  name: '${name}-${suffix}'
  location: location
  kind: 'functionapp,linux'
  identity: { type: 'SystemAssigned' }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    siteConfig: { minTlsVersion: '1.2', ftpsState: 'Disabled', http20Enabled: true }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${host.properties.primaryEndpoints.blob}${package.name}'
          authentication: { type: 'SystemAssignedIdentity' }
        }
      }
      runtime: { name: 'custom', version: '1.0' }
      scaleAndConcurrency: { instanceMemoryMB: 2048, maximumInstanceCount: 40 }
    }
  }
}

// No password, no SCM publishing with one.
resource noFtp 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-04-01' = {
  parent: app
  name: 'ftp'
  properties: { allow: false }
}

resource noScm 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-04-01' = {
  parent: app
  name: 'scm'
  properties: { allow: false }
}

// The function's settings: TestDeployment in functions/azure compares them with what it reads. functionTimeout stays that of
// host.json, and the schedule is in UTC.
resource settings 'Microsoft.Web/sites/config@2024-04-01' = {
  parent: app
  name: 'appsettings'
  properties: {
    AzureWebJobsStorage__accountName: host.name
    APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
    APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'Authorization=AAD'
    AZURE_STORAGE_SERVICE_URL: 'https://${data.name}.blob.${environment().suffixes.storage}'
    LEASE_CONTAINER: locks.name
    PAYMENTS_CONTAINER: payments.name
    RESULTS_CONTAINER: results.name
    LEASE_JOB: 'settlement'
    LEASE_TTL: leaseTtl
    LEASE_POLICY: leasePolicy
    LEASE_TOKENS: 'page'
  }
}

// What a holder, and a writer behind the fence, was seen to ask for: docs/azure.md, Permissions. It may not delete, list
// containers or change their policies.
resource holder 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, name, 'holder')
  properties: {
    roleName: '${name} blob holder (${suffix})'
    description: 'Reads and writes blobs; deletes none.'
    type: 'CustomRole'
    permissions: [
      {
        actions: []
        notActions: []
        dataActions: [
          'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'
          'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write'
        ]
        notDataActions: []
      }
    ]
    assignableScopes: [resourceGroup().id]
  }
}

resource reader 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, name, 'reader')
  properties: {
    roleName: '${name} blob reader (${suffix})'
    description: 'Reads blobs.'
    type: 'CustomRole'
    permissions: [
      {
        actions: []
        notActions: []
        dataActions: [
          'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'
        ]
        notDataActions: []
      }
    ]
    assignableScopes: [resourceGroup().id]
  }
}

resource mayLock 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(locks.id, app.id, 'holder')
  scope: locks
  properties: {
    roleDefinitionId: holder.id
    principalId: app.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

resource mayWrite 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(results.id, app.id, 'holder')
  scope: results
  properties: {
    roleDefinitionId: holder.id
    principalId: app.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

resource mayRead 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(payments.id, app.id, 'reader')
  scope: payments
  properties: {
    roleDefinitionId: reader.id
    principalId: app.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

// Storage Blob Data Owner, as Microsoft documents for the host's own storage; on that account alone.
resource mayHost 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(host.id, app.id, 'host')
  scope: host
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b')
    principalId: app.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

// Monitoring Metrics Publisher: telemetry without a key.
resource mayTell 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(insights.id, app.id, 'telemetry')
  scope: insights
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '3913510d-42f4-4e42-8a64-420c390055eb')
    principalId: app.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

resource people 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: '${name}-people'
  location: 'global'
  properties: {
    groupShortName: name
    enabled: true
    emailReceivers: [
      { name: 'mail', emailAddress: alertEmail, useCommonAlertSchema: true }
    ]
  }
}

// The host has no dead-letter queue: when its retries are over, nobody runs the occurrence.
var alerts = [
  {
    id: 'failed'
    severity: 2
    text: 'Deliveries of the settlement failed. The reason is in the log, in the line "singleton delivery".'
    query: 'requests | where name == "settlement" and success == false'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    every: 'PT5M'
  }
  {
    id: 'missing'
    severity: 1
    text: 'No delivery of the settlement has succeeded for a day.'
    query: 'requests | where name == "settlement" and success == true'
    operator: 'LessThan'
    threshold: 1
    window: 'P1D'
    every: 'PT1H'
  }
  {
    id: 'lost'
    severity: 2
    text: 'A run lost its lease, or a fence refused its write. See docs/operations.md.'
    query: 'traces | where message contains "\\"event\\":\\"lost\\"" or message contains "\\"outcome\\":\\"refused\\""'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    every: 'PT5M'
  }
]

resource rules 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = [for alert in alerts: {
  name: '${name}-${alert.id}'
  location: location
  properties: {
    displayName: '${name}: ${alert.id}'
    description: alert.text
    severity: alert.severity
    enabled: true
    scopes: [insights.id]
    evaluationFrequency: alert.every
    windowSize: alert.window
    criteria: {
      allOf: [
        {
          query: alert.query
          timeAggregation: 'Count'
          operator: alert.operator
          threshold: alert.threshold
          failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
        }
      ]
    }
    actions: { actionGroups: [people.id] }
  }
}]

output appName string = app.name
output dataAccount string = data.name
