//go:build linux

package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/internal/emulator"
)

// TestDoctorFindsFaults: each fault is found by the item that it concerns, with what to do, and no user's lock is touched.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	const denied = "AccessDeniedException"
	for name, c := range map[string]struct {
		disturb       func(w *world)
		check, status string
		found, fix    string
	}{
		"no GetItem":    {func(w *world) { w.gate.refuse("GetItem", denied) }, "dynamodb:GetItem", "fail", "access denied", "allow dynamodb:GetItem"},
		"no UpdateItem": {func(w *world) { w.gate.refuse("UpdateItem", denied) }, "dynamodb:UpdateItem", "fail", "access denied", "allow dynamodb:UpdateItem"},
		"no Scan":       {func(w *world) { w.gate.refuse("Scan", denied) }, "dynamodb:Scan", "warn", "only list, watch", "allow dynamodb:Scan"},
		"no description": {
			func(w *world) { w.gate.refuse("DescribeTable", denied) }, "schema and replicas", "skip", "dynamodb:DescribeTable", "locking does not need it",
		},
		"no expiry seen": {func(w *world) { w.gate.refuse("DescribeTimeToLive", denied) }, "item expiry", "skip", "DescribeTimeToLive", "allow dynamodb:DescribeTimeToLive"},
		"item expiry": {
			func(w *world) {
				w.gate.answer("DescribeTimeToLive", `{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"expires"}}`)
			}, "item expiry", "fail", `on for the attribute "expires"`, "turn it off",
		},
		"replicas": {func(w *world) {
			w.gate.answer("DescribeTable", table(`"Replicas":[{"RegionName":"us-east-1"}],`, "name"))
		}, "replicas", "fail", "us-east-1", "home=REGION"},
		"schema": {func(w *world) { w.gate.answer("DescribeTable", table("", "id")) }, "schema", "fail", "its key is id (S, HASH), expected name (S, HASH)", "cloudlease init"},
		"ahead":  {func(w *world) { w.gate.tell(-time.Minute) }, "clock", "warn", "ahead of the service's", "NTP"},
		"behind": {func(w *world) { w.gate.tell(time.Minute) }, "clock", "warn", "behind the service's", "NTP"},
		"credentials": {
			func(w *world) { w.env = append(w.env, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=") }, "credentials", "fail", "", "aws configure",
		},
		"unreachable": {func(w *world) {
			w.env = append(w.env, "CLOUDLEASE_STORE="+strings.Split(w.url, "&")[0]+"&endpoint=http://127.0.0.1:1")
		}, "reachability", "fail", "connection refused", "check the endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.ok("run", "users", "--", "true")
			before := len(w.gate.requests("users"))
			c.disturb(w)
			d := w.doctor()
			require.Equal(t, c.status != "fail", d.OK, "%+v", d)
			var found bool
			for _, i := range d.Items {
				if i.Check == c.check {
					found = true
					require.Equal(t, c.status, i.Status, "%+v", i)
					require.Contains(t, i.Found, c.found)
					require.Contains(t, i.Fix, c.fix)
				}
			}
			require.True(t, found, "%+v", d)
			require.Len(t, w.gate.requests("users"), before)
		})
	}
}

// table is the description of a table with a hash key of that name.
func table(more, key string) string {
	return `{"Table":{"TableName":"locks","TableStatus":"ACTIVE",` + more + `"TableArn":"arn:aws:dynamodb:eu-west-1:123456789012:table/locks",` +
		`"AttributeDefinitions":[{"AttributeName":"` + key + `","AttributeType":"S"}],"KeySchema":[{"AttributeName":"` + key + `","KeyType":"HASH"}]}}`
}

// TestDoctorWithoutATable names the command that makes one; after it, all is well.
func TestDoctorWithoutATable(t *testing.T) {
	t.Parallel()
	w := newEmptyWorld(t)
	r := w.cli("doctor")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "fail  dynamodb:GetItem")
	require.Contains(t, r.out, "fix: make the table with: cloudlease init")
	run := w.cli("run", "L", "--", "true")
	require.Equal(t, 192, run.code)
	require.Contains(t, run.err, "create table locks")
	require.Contains(t, run.err, "cloudlease doctor")
	w.ok("init")
	w.healthy()
	require.Contains(t, w.ok("doctor"), "ok    end to end")
}

// TestDoctorChangesNothingButItsProbe: the table holds the probe alone afterwards, and no write of a permission check.
func TestDoctorChangesNothingButItsProbe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.healthy()
	out, err := emulator.Client(w.endpoint(), nil).Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("locks")})
	require.NoError(t, err)
	require.Len(t, out.Items, 1)
	require.Equal(t, &types.AttributeValueMemberS{Value: "cloudlease-doctor-probe"}, out.Items[0]["name"])
	require.NotContains(t, out.Items[0], "probe")
	require.Equal(t, "free", w.status("cloudlease-doctor-probe").State)
}

// TestDocuments are well-formed, name the place, and allow what docs/iam.md says.
func TestDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policy := w.ok("init", "--print", "policy")
	var doc struct {
		Statement []struct {
			Action   []string
			Resource string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(policy), &doc))
	require.Equal(t, []string{"dynamodb:GetItem", "dynamodb:UpdateItem"}, doc.Statement[0].Action)
	require.Equal(t, []string{"dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"}, doc.Statement[1].Action)
	require.Equal(t, "arn:aws:dynamodb:eu-west-1:*:table/locks", doc.Statement[0].Resource)
	require.Contains(t, w.ok("init", "--print", "terraform"), `hash_key     = "name"`)
	require.Contains(t, w.ok("init", "--print", "cloudformation"), "KeyType: HASH")
	require.Equal(t, 194, w.cli("init", "--print", "pulumi").code)
	var role struct{ DataActions []string }
	require.NoError(t, json.Unmarshal([]byte(w.ok("init", "--print", "policy", "--store", "azblob://acc/locks")), &role))
	require.Len(t, role.DataActions, 2)
	require.Contains(t, w.ok("init", "--print", "terraform", "--store", "azblob://acc/locks"), `name                  = "locks"`)
	require.Contains(t, w.ok("init", "--print", "policy", "--store", "consul://h:1/a/b"), `key_prefix "a/b/"`)
	require.Contains(t, w.ok("init", "--print", "terraform", "--store", "consul://h:1"), `key_prefix "cloudlease/"`)
	require.Equal(t, 194, w.cli("init", "--backups", "--store", "azblob://acc/locks").code)
	require.Empty(t, w.gate.log[1:], "printing asks for nothing") // but for the table that the test has made
}
