package store

import (
	"bytes"
	"os"
	"testing"

	"github.com/parley-project/parley"
)

// Every kind of authentication comes back as it was stored, and goes away again.
func TestAgentAuth(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for i, auth := range []parley.Auth{
			{Type: parley.AuthAPIKey, Header: "key", In: parley.InQuery, Secret: "env:KEY"},
			{Type: parley.AuthBasic, User: "Ann", Secret: "file:pw"},
			{Type: parley.AuthHeaders, Headers: map[string]string{"X-A": "env:A", "X-B": "sealed:abc"}},
			{Type: parley.AuthOAuth2, Secret: "sealed:abc", OAuth2: &parley.OAuth2{
				TokenURL: "https://login.example/token", ClientID: "c", Scopes: []string{"a", "b"}, Audience: "x", Style: parley.OAuth2InBody,
			}},
			{Type: parley.AuthMTLS},
		} {
			a := newAgent("a" + string(rune('0'+i)))
			a.Auth, a.TLS = auth, parley.AgentTLS{Cert: "file:c.pem", Key: "sealed:k", CA: "env:CA"}
			check(t, db.CreateAgent(ctx, a))
			diff(t, must(db.Agent(ctx, a.Name))(t), a)
			a.Auth, a.TLS = parley.Auth{Type: parley.AuthNone}, parley.AgentTLS{}
			a = changeAgent(t, db, a)
			diff(t, must(db.Agent(ctx, a.Name))(t), a)
		}
	})
}

// No member of an authentication gets into the database, or into an error, as
// a secret itself.
func TestAgentAuthSecretsAreReferences(t *testing.T) {
	db := newDB(t, Options{})
	for i, change := range []func(*parley.Agent){
		func(a *parley.Agent) { a.Auth.Headers = map[string]string{"X-A": "env:A", "X-B": "hunter2"} },
		func(a *parley.Agent) { a.TLS.Cert = "hunter2" },
		func(a *parley.Agent) { a.TLS.Key = "pem:hunter2" },
		func(a *parley.Agent) { a.TLS.CA = "hunter2:env:X" },
	} {
		a := newAgent("a")
		change(&a)
		err := db.CreateAgent(t.Context(), a)
		wantCode(t, err, parley.CodeInvalid)
		if bytes.Contains([]byte(err.Error()), []byte("hunter2")) {
			t.Errorf("%d: %v shows the secret", i, err)
		}
	}
	// What was resolved for a call is no part of the record.
	a := newAgent("a")
	a.Credential = parley.NewSecret([]byte("hunter2"))
	a.Resolved = &parley.ResolvedAuth{Key: parley.NewSecret([]byte("hunter2"))}
	check(t, db.CreateAgent(t.Context(), a))
	check(t, db.Close())
	data, err := os.ReadFile(db.path)
	check(t, err)
	if bytes.Contains(data, []byte("hunter2")) {
		t.Error("the database holds a secret")
	}
}
