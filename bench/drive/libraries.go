package drive

import (
	"fmt"
	"runtime/debug"
)

// libraries are the drivers in Go, by subject, with the module whose version is told.
var libraries = map[string]struct {
	open   func(Settings) (Library, error)
	module string
}{
	"cloudlease-dynamodb": {cloudOnDynamoDB, "github.com/cloudlease/cloudlease"},
	"cloudlease-azure":    {cloudOnAzure, "github.com/cloudlease/cloudlease"},
	"cloudlease-consul":   {cloudOnConsul, "github.com/cloudlease/cloudlease"},
	"sdk-dynamodb":        {newBareDynamoDB, "github.com/aws/aws-sdk-go-v2/service/dynamodb"},
	"sdk-azure":           {newBareAzure, "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"},
	"sdk-consul":          {newBareConsul, "github.com/hashicorp/consul/api"},
	"dynamolock-go":       {newCirello, "cirello.io/dynamolock/v2"},
	"consul-api-lock":     {newConsulAPI, "github.com/hashicorp/consul/api"},
}

// Go makes the driver of a subject. Version is the module's and its own.
func Go(subject string, s Settings) (l Library, version string, err error) {
	d, ok := libraries[subject]
	if !ok {
		return nil, "", fmt.Errorf("there is no driver in Go for %q", subject)
	}
	l, err = d.open(s)
	return l, moduleVersion(d.module), err
}

func moduleVersion(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return module
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			if dep.Replace != nil {
				return module + " (this checkout)"
			}
			return module + " " + dep.Version
		}
	}
	return module
}
