#!/bin/sh
# LocalStack runs this when it is ready: it deploys template.yaml, and with it the tables, from the archives of `make build`.
set -eu
cd /opt/cloudlease
awslocal s3 mb s3://cloudlease-code
for archive in dist/*.zip; do
	awslocal s3 cp "$archive" "s3://cloudlease-code/${archive#dist/}"
done
sed 's|CodeUri: dist/|CodeUri: s3://cloudlease-code/|' template.yaml >/tmp/template.yaml
awslocal cloudformation create-stack --stack-name cloudlease --template-body file:///tmp/template.yaml \
	--capabilities CAPABILITY_IAM CAPABILITY_AUTO_EXPAND --parameters ParameterKey=ScheduleState,ParameterValue=DISABLED
awslocal cloudformation wait stack-create-complete --stack-name cloudlease
