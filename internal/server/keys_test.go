package server_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// TestKeysOfServers makes a key on one server and uses it on another that shares
// its database: what is revoked on the first is refused by the second soon.
func TestKeysOfServers(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		w := scheduled(t, server.Config{})
		secret := keyIsGood(w, w)
		err := filepath.WalkDir(w.cfg.Data, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if bytes.Contains(text, secret) {
				t.Errorf("the secret stands in %s", d.Name())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cfg := server.Config{DatabaseURL: parley.NewSecret([]byte(pgtest.Database(t))), SealKeyFile: filepath.Join(t.TempDir(), "seal")}
		keyIsGood(scheduled(t, cfg), scheduled(t, cfg))
	})
}

// keyIsGood gives the secret of a key that was made, used and revoked.
func keyIsGood(one, two *world) []byte {
	t := one.t
	t.Helper()
	var made parley.NewAccessKey
	if err := json.Unmarshal(one.send(http.MethodPost, "keys", `{"name":"ci","expires_in":"1d"}`, http.StatusCreated), &made); err != nil {
		t.Fatal(err)
	}
	use := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, two.server.URL()+"/api/v1/workflows/tick/aliases/beta", bytes.NewBufferString(`{"version":"1"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+made.Key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	one.send(http.MethodPost, "workflows", `{"name":"tick","workflow_id":"tick","steps":[{"id":"a","set":"1"}]}`, http.StatusCreated)
	if got := use(); got != http.StatusCreated {
		t.Fatalf("with the key: %d", got)
	}
	var audit struct{ Items []map[string]any }
	one.get("audit?entity_type=workflow&action=alias", &audit)
	if len(audit.Items) != 1 || audit.Items[0]["user_id"] != "ci" {
		t.Errorf("who set the alias: %v", audit.Items)
	}
	one.send(http.MethodDelete, "keys/ci", "", http.StatusOK)
	for end := time.Now().Add(20 * time.Second); use() != http.StatusUnauthorized; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a key that was revoked is good for 20 s")
		}
	}
	var list struct{ Items []parley.AccessKey }
	two.get("keys", &list)
	if len(list.Items) != 1 || list.Items[0].State != parley.KeyRevoked || list.Items[0].LastUsedAt == nil {
		t.Errorf("the keys are %+v", list.Items)
	}
	return []byte(made.Key)
}
