// Command bloblease is an AWS Lambda function that settles the payments of a day once per occurrence of its schedule, with its
// lock, its payments and its results in Azure Blob Storage.
package main

import (
	"github.com/cloudlease/cloudlease/functions/bloblease/blobjob"
	"github.com/cloudlease/cloudlease/functions/internal/start"
	"github.com/cloudlease/cloudlease/lambdalease"
)

func main() { start.Lambda(newHandler) }

// newHandler puts the function together from its environment. It makes no request.
func newHandler(getenv func(string) string) (*lambdalease.Handler, error) {
	cfg, err := blobjob.Configure(getenv)
	if err != nil {
		return nil, err
	}
	client, job, err := cfg.Open()
	if err != nil {
		return nil, err
	}
	return lambdalease.New(client, cfg.Job, job.Handle, &lambdalease.Options{Singleton: cfg.Singleton()})
}
