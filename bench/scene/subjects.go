package scene

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cloudlease/cloudlease/bench/drive"
)

// Kind is what a subject is in a comparison.
type Kind string

// The kinds of subjects.
const (
	Ours  Kind = "cloudlease"
	Floor Kind = "bare SDK"
	Peer  Kind = "peer"
)

// The stores.
const (
	DynamoDB = "dynamodb"
	Azure    = "azure"
	Consul   = "consul"
)

// Subject is what is measured.
type Subject struct {
	Name     string // in results
	Label    string // in tables
	Store    string
	Kind     Kind
	Language string
	Key      string // the hash key of its table, on DynamoDB
}

// Subjects are all there are, in the order of the tables.
func Subjects() []Subject {
	return []Subject{
		{"cloudlease-dynamodb", "cloudlease", DynamoDB, Ours, "go", "name"},
		{"sdk-dynamodb", "bare SDK", DynamoDB, Floor, "go", "name"},
		{"dynamolock-go", "dynamolock (Go)", DynamoDB, Peer, "go", "key"},
		{"amazon-lock-client", "Amazon lock client (Java)", DynamoDB, Peer, "java", "key"},
		{"shedlock", "ShedLock (Java)", DynamoDB, Peer, "java", "_id"},
		{"npm-lock-client", "dynamodb-lock-client (npm)", DynamoDB, Peer, "node", "id"},
		{"cloudlease-azure", "cloudlease", Azure, Ours, "go", ""},
		{"sdk-azure", "bare SDK", Azure, Floor, "go", ""},
		{"cloudlease-consul", "cloudlease", Consul, Ours, "go", ""},
		{"sdk-consul", "bare SDK", Consul, Floor, "go", ""},
		{"consul-api-lock", "consul/api Lock (Go)", Consul, Peer, "go", ""},
	}
}

// Missing says why a subject cannot run on this machine; empty: it can. dir is the directory of this module.
func (s Subject) Missing(dir string) string {
	var program, file, build string
	switch s.Language {
	case "java":
		program, file, build = "java", filepath.Join(dir, "java", "target", "lib"), "make bench-java (needs a JDK 17 and Maven)"
	case "node":
		program, file, build = "node", filepath.Join(dir, "node", "node_modules", "dynamodb-lock-client"), "make bench-node (needs npm)"
	default:
		return ""
	}
	if _, err := exec.LookPath(program); err != nil {
		return program + " is not installed"
	}
	if _, err := os.Stat(file); err != nil {
		return "it is not built: " + build
	}
	return ""
}

// command is the subject's driver.
func (s Subject) command(ctx context.Context, dir string, set drive.Settings) (*exec.Cmd, error) {
	args := []string{s.Name, set.URL, set.Table, strconv.FormatInt(set.TTL.Milliseconds(), 10)}
	ctx = context.WithoutCancel(ctx)
	switch s.Language {
	case "java":
		path := filepath.Join(dir, "java", "target", "classes") + ":" + filepath.Join(dir, "java", "target", "lib", "*")
		return exec.CommandContext(ctx, "java", append([]string{"-Xmx512m", "-cp", path, "bench.Main"}, args...)...), nil
	case "node":
		return exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, "node", "driver.cjs")}, args...)...), nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return exec.CommandContext(ctx, self, append([]string{"-drive"}, args...)...), nil
}

// ttl is the nearest TTL that the store allows.
func (s Subject) ttl(want time.Duration) time.Duration {
	switch s.Store {
	case Azure:
		return max(want, 15*time.Second)
	case Consul:
		return max(want, 10*time.Second)
	}
	return want
}
