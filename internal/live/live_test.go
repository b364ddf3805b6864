package live_test

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/dynamolock"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/internal/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWanted(t *testing.T) {
	t.Setenv(live.Variable, "")
	require.False(t, live.Wanted(live.DynamoDB))
	t.Setenv(live.Variable, "consul, dynamodb")
	require.True(t, live.Wanted(live.DynamoDB))
	require.True(t, live.Wanted(live.Consul))
	require.False(t, live.Wanted(live.AzBlob))
	t.Setenv(live.Variable, "dynamo")
	require.PanicsWithValue(t, `CLOUDLEASE_LIVE="dynamo": "dynamo" is none of dynamodb, azblob, consul`, func() { live.Wanted(live.Consul) })
}

// What exists is refused and left as it is, what was not made here is not deleted, what was made here is.
func TestTables(t *testing.T) {
	for _, engine := range emulator.Engines() {
		t.Run(engine.Name, func(t *testing.T) {
			for name, value := range map[string]string{
				"AWS_ENDPOINT_URL_DYNAMODB": engine.For(t).URL, "AWS_REGION": "eu-west-1",
				"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
			} {
				t.Setenv(name, value)
			}
			other, err := live.OpenTables(t.Context())
			require.NoError(t, err)
			tables, err := live.OpenTables(t.Context())
			require.NoError(t, err)
			taken := dynamolock.CreateTableInput(other.Name())
			require.NoError(t, other.Create(t.Context(), taken))

			require.ErrorContains(t, tables.Create(t.Context(), dynamolock.CreateTableInput(*taken.TableName)), "refused")
			require.ErrorContains(t, tables.Delete(t.Context(), *taken.TableName), "refused")
			own := dynamolock.CreateTableInput(tables.Name())
			require.NotEqual(t, *taken.TableName, *own.TableName)
			require.NoError(t, tables.Create(t.Context(), own))
			require.NoError(t, tables.Delete(t.Context(), *own.TableName))

			wire := &http.Transport{DisableKeepAlives: true}
			_, err = tables.Client(wire).DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: taken.TableName})
			require.NoError(t, err)
		})
	}
}

func TestContainers(t *testing.T) {
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	e, err := emulator.StartAzurite(t.Context(), emulator.AzuriteOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", emulator.AzuriteConnection(e.URL))
	other, err := live.OpenContainers()
	require.NoError(t, err)
	containers, err := live.OpenContainers()
	require.NoError(t, err)
	taken := other.Name()
	require.NoError(t, other.Create(t.Context(), taken))

	require.ErrorContains(t, containers.Create(t.Context(), taken), "refused")
	require.ErrorContains(t, containers.Delete(t.Context(), taken), "refused")
	own := containers.Name()
	require.NotEqual(t, taken, own)
	require.NoError(t, containers.Create(t.Context(), own))
	require.NoError(t, containers.Delete(t.Context(), own))

	c, err := containers.Client(taken, &http.Transport{DisableKeepAlives: true})
	require.NoError(t, err)
	_, err = c.GetProperties(t.Context(), nil)
	require.NoError(t, err)
}

func TestPrefixes(t *testing.T) {
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return
	}
	ports, err := emulator.FreeConsulPorts()
	require.NoError(t, err)
	e, err := emulator.StartConsul(t.Context(), emulator.ConsulOptions{Node: "node", Ports: ports})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	t.Setenv(api.HTTPAddrEnvName, "127.0.0.1:"+strconv.Itoa(ports.HTTP))
	prefixes, err := live.OpenPrefixes()
	require.NoError(t, err)
	taken := prefixes.Name()
	put(t, ports, taken+"key")

	require.ErrorContains(t, prefixes.Create(t.Context(), taken), "refused")
	require.ErrorContains(t, prefixes.Remove(t.Context(), taken), "refused")
	own := prefixes.Name()
	require.NotEqual(t, taken, own)
	require.NoError(t, prefixes.Create(t.Context(), own))
	put(t, ports, own+"key")
	require.NoError(t, prefixes.Remove(t.Context(), own))
	require.NoError(t, prefixes.Create(t.Context(), own), "it is empty")

	var kept []struct{ Key string }
	require.NoError(t, emulator.ConsulCall(context.Background(), ports, "", http.MethodGet, "/v1/kv/"+taken+"?recurse", "", &kept))
	require.Len(t, kept, 1)
}

func put(t *testing.T, ports emulator.ConsulPorts, key string) {
	t.Helper()
	require.NoError(t, emulator.ConsulCall(t.Context(), ports, "", http.MethodPut, "/v1/kv/"+key, "value", nil))
}
