package parley_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/parley-project/parley"
)

// TestSecretSet: the newest eight are remembered, each once.
func TestSecretSet(t *testing.T) {
	var set parley.SecretSet
	set.Add(parley.Secret{})
	for i := range 10 {
		set.Add(parley.NewSecret(fmt.Append(nil, "s", i)))
		set.Add(parley.NewSecret(fmt.Append(nil, "s", i)))
	}
	var got []string
	for _, s := range set.All() {
		got = append(got, string(s.Reveal()))
	}
	if strings.Join(got, " ") != "s2 s3 s4 s5 s6 s7 s8 s9" {
		t.Errorf("%q", got)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() { set.Add(parley.NewSecret(fmt.Append(nil, "c", i))); set.All() })
	}
	wg.Wait()
	if n := len(set.All()); n != 8 {
		t.Errorf("%d kept", n)
	}
}

// TestResolvedAuthIsRedacted: nothing that prints or encodes an agent that is
// ready for a call shows a secret of it.
func TestResolvedAuthIsRedacted(t *testing.T) {
	secret := parley.NewSecret([]byte("t0p-secret"))
	resolved := &parley.ResolvedAuth{Headers: map[string]parley.Secret{"X-A": secret}, Cert: secret, Key: secret, CA: secret}
	resolved.Later.Add(secret)
	agent := parley.Agent{Name: "a", Credential: secret, Resolved: resolved}
	spec := parley.AgentSpec{
		Auth: &parley.AuthSpec{Literal: secret, Headers: map[string]parley.SecretSpec{"X-A": {Literal: secret}}},
		TLS:  &parley.TLSSpec{Key: parley.SecretSpec{Literal: secret}},
	}
	for _, v := range []any{agent, &agent, resolved, resolved.Headers, &resolved.Later, spec, spec.Auth, spec.TLS} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		for _, out := range []string{fmt.Sprintf("%v %+v %#v %s %x", v, v, v, v, v), string(b)} {
			if strings.Contains(out, "t0p") || strings.Contains(out, fmt.Sprintf("%x", "t0p")) {
				t.Errorf("%T shows it: %s", v, out)
			}
		}
	}
}

// TestResolvedDigest: another secret, or one in another place, is another digest.
func TestResolvedDigest(t *testing.T) {
	secret := func(s string) parley.Secret { return parley.NewSecret([]byte(s)) }
	headers := func(pairs ...string) *parley.ResolvedAuth {
		r := &parley.ResolvedAuth{Headers: map[string]parley.Secret{}}
		for i := 0; i < len(pairs); i += 2 {
			r.Headers[pairs[i]] = secret(pairs[i+1])
		}
		return r
	}
	var none *parley.ResolvedAuth
	seen := map[[32]byte]int{none.Digest(): -1}
	for i, r := range []*parley.ResolvedAuth{
		{},
		{Cert: secret("x")},
		{Key: secret("x")},
		{CA: secret("x")},
		{Cert: secret("xx")},
		headers("a", "x"), headers("a", "y"), headers("b", "x"), headers("a", "x", "b", "y"), headers("a", "y", "b", "x"), headers("ax", ""),
	} {
		before := r.Digest()
		if other, ok := seen[before]; ok {
			t.Errorf("%d has the digest of %d", i, other)
		}
		seen[before] = i
		if r.Later.Add(secret("later")); r.Digest() != before {
			t.Errorf("%d: what came up later changes the digest", i)
		}
	}
}
