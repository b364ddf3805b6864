package bloblease_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"

	"github.com/cloudlease/cloudlease/bloblease"
	"github.com/cloudlease/cloudlease/lease"
)

// TestGE01_BlobNames: on the wire a lock's name has nothing in it that the service or a tool reads in another way.
func TestGE01_BlobNames(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		c := sdk(nil)
		st := newStore(t, c, bloblease.Options{Prefix: strings.Repeat("p", 199) + "/"})
		longest := strings.Repeat("\U0010ffff", 63) + "..." // 255 bytes, every one of them escaped
		for name, want := range map[string]string{
			"plain-Name_0": "plain-Name_0", "a/b": "a=2Fb", "..": "=2E=2E", "=2F": "=3D2F", "%2F": "=252F", "é": "=C3=A9", " ": "=20",
			longest: "",
		} {
			try(t, st, name, name)
			if want != "" {
				_, err := c.NewBlobClient(strings.Repeat("p", 199)+"/locks/"+want).GetProperties(t.Context(), nil)
				require.NoError(t, err, "%q", name)
			}
		}
		found := 0
		for info, err := range st.List(t.Context(), "") {
			require.NoError(t, err)
			require.NoError(t, lease.CheckName(info.Name))
			found++
		}
		require.Equal(t, 8, found)
		for _, err := range newStore(t, c, bloblease.Options{}).List(t.Context(), "") {
			require.NoError(t, err)
			require.Fail(t, "another prefix's lock was listed")
		}
	})
}

// TestForeignBlobsInAListing end it: a part is never passed off as the whole.
func TestForeignBlobsInAListing(t *testing.T) {
	for _, name := range []string{"a/b", "a.b", "=2", "=zz", "=61"} {
		s := newService()
		h := s.host(t, nil)
		_, err := s.sdk(t, nil).NewPageBlobClient("cloudlease/locks/"+name).Create(t.Context(), 512, nil)
		require.NoError(t, err)
		var failed error
		for _, err := range h.List(t.Context(), "") {
			failed = err
		}
		requireClass(t, failed, lease.ErrMisconfigured)
	}
}

// TestLargestNote fits: the longest holder, value and reason.
func TestLargestNote(t *testing.T) {
	onEach(t, func(t *testing.T, sdk func(func(http.RoundTripper) http.RoundTripper) *container.Client) {
		st := storeOn(t, sdk(nil))
		r := request("x")
		r.Holder = strings.Repeat("h", 209)
		g, err := st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		reason := lease.Reason{By: strings.Repeat("b", 256), Why: strings.Repeat("\xff", 256)}
		require.NoError(t, st.Break(t.Context(), "x", g.Token, reason))
		r.Attempt = "next"
		g, err = st.TryAcquire(t.Context(), r)
		require.NoError(t, err)
		value := []byte(strings.Repeat("\xff", lease.MaxValue))
		_, err = st.Save(t.Context(), g, value)
		require.NoError(t, err)
		info, err := st.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, r.Holder, info.Holder)
		require.Equal(t, value, info.Value)
		require.Equal(t, reason.Why, info.Broken.Why)

		rec, err := st.Swap(t.Context(), lease.Record{Key: "r"}, make([]byte, bloblease.MaxRecord), 0)
		require.NoError(t, err)
		_, err = st.Swap(t.Context(), rec, make([]byte, bloblease.MaxRecord+1), 0)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}
