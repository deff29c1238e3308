package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
)

// fakeDetector finds what it is told, and keeps whom it was asked about.
type fakeDetector struct {
	found parley.Detection
	err   error
	asked []parley.Agent
	anew  int
	// during, if set, runs while the agent is asked.
	during func()
}

func (d *fakeDetector) Detect(_ context.Context, a parley.Agent) (parley.Detection, error) {
	d.asked = append(d.asked, a)
	if d.during != nil {
		d.during()
	}
	return d.found, d.err
}

func (d *fakeDetector) Refresh(ctx context.Context, a parley.Agent) (parley.Detection, error) {
	d.anew++
	return d.Detect(ctx, a)
}

func (d *fakeDetector) last() parley.Agent { return d.asked[len(d.asked)-1] }

func detecting(t *testing.T) (*fixture, *fakeDetector) {
	t.Helper()
	d := &fakeDetector{found: parley.Detection{
		Protocol: parley.ProtocolJSONRPC, URL: "http://agent.example/rpc", Binding: "JSONRPC", Version: "1.0", Explanation: []string{"because"},
	}}
	f := newFixture(t, func(c *registry.Config) { c.Detector = d })
	f.probe = func(context.Context, parley.Agent) (parley.AgentHealth, error) {
		return parley.AgentHealth{Healthy: true}, nil
	}
	return f, d
}

func autoSpec(name string) parley.AgentSpec {
	s := spec(name)
	s.Protocol = new(parley.ProtocolAuto)
	return s
}

// An agent that is added with the protocol "auto" is called by what was found.
func TestAD14_AddDetects(t *testing.T) {
	t.Parallel()
	f, d := detecting(t)
	s := autoSpec("a")
	s.ProtocolConfig = json.RawMessage(`{"method":"m"}`)
	s.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_TOKEN"}
	a := f.mustAdd(t, s)
	got, ok := parley.ReadDetection(a.Detected)
	if !ok || a.Protocol != parley.ProtocolJSONRPC || got.Version != "1.0" || a.URL != "http://agent.example/" {
		t.Errorf("%+v", a)
	}
	if asked := d.last(); asked.Protocol != "" || string(asked.Credential.Reveal()) != "from-the-env" || string(asked.ProtocolConfig) != `{"method":"m"}` {
		t.Errorf("asked about %+v", asked)
	}
	stored, err := f.Get(t.Context(), "a")
	if err != nil || string(stored.Detected) != string(a.Detected) || !stored.Credential.IsZero() {
		t.Errorf("stored %+v, %v", stored, err)
	}
	// Whoever names a protocol is believed.
	if b := f.mustAdd(t, spec("b")); b.Detected != nil || len(d.asked) != 1 {
		t.Errorf("%+v", b)
	}
	// The card's own address is not where the agent is.
	d.found.CardURL = "http://agent.example/card.json"
	c := autoSpec("c")
	c.URL = new("http://agent.example/card.json")
	if a := f.mustAdd(t, c); a.URL != "http://agent.example/rpc" {
		t.Errorf("%+v", a)
	}
	d.found = parley.Detection{Protocol: parley.ProtocolSimpleA2A, URL: "http://agent.example/"}
	if a := f.mustAdd(t, autoSpec("d")); a.Protocol != parley.ProtocolSimpleA2A {
		t.Errorf("%+v", a)
	}

	// Nothing is guessed, and nothing is asked about what cannot be stored.
	asked := len(d.asked)
	for _, bad := range []parley.AgentSpec{
		{Protocol: new(parley.ProtocolAuto), Name: new("x")},
		{Protocol: new(parley.ProtocolAuto), URL: new("http://h/")},
		func() parley.AgentSpec {
			s := autoSpec("x")
			s.ProtocolConfig = json.RawMessage(`{"version":"3"}`)
			return s
		}(),
	} {
		if _, err := f.Add(t.Context(), bad); parley.CodeOf(err) != parley.CodeInvalid || len(d.asked) != asked {
			t.Errorf("%v", err)
		}
	}
	gone := autoSpec("x")
	gone.Auth = &parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_GONE"}
	if _, err := f.Add(t.Context(), gone); parley.CodeOf(err) != parley.CodeAgentUnavailable || len(d.asked) != asked {
		t.Errorf("%v", err)
	}
	d.err = parley.Errorf(parley.CodeAgentUnavailable, "nobody there")
	if _, err := f.Add(t.Context(), autoSpec("x")); parley.CodeOf(err) != parley.CodeAgentUnavailable {
		t.Errorf("%v", err)
	}
	if _, err := f.Get(t.Context(), "x"); parley.CodeOf(err) != parley.CodeNotFound {
		t.Errorf("it was stored: %v", err)
	}
	if _, err := newFixture(t).Add(t.Context(), autoSpec("x")); parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "name the protocol: jsonrpc-2.0, simple-a2a") {
		t.Errorf("%v", err)
	}
}

// Detect stores nothing and needs no name; a literal credential is used.
func TestAD14_DetectStoresNothing(t *testing.T) {
	t.Parallel()
	f, d := detecting(t)
	got, err := f.Detect(t.Context(), parley.AgentSpec{
		URL: new("http://h"), Auth: &parley.AuthSpec{Type: parley.AuthBearer, Literal: parley.NewSecret([]byte("c4nary"))},
	})
	if err != nil || got.Version != "1.0" || len(f.store.byID) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if a := d.last(); a.URL != "http://h/" || string(a.Credential.Reveal()) != "c4nary" {
		t.Errorf("asked about %+v", a)
	}
	if _, err := f.Detect(t.Context(), parley.AgentSpec{URL: new("http://h"), Protocol: new(parley.ProtocolJSONRPC)}); err != nil || d.last().Protocol != parley.ProtocolJSONRPC {
		t.Errorf("%+v, %v", d.last(), err)
	}
	// By its name, an agent is asked about as its record says.
	known := spec("known")
	known.Protocol, known.Auth = new(parley.ProtocolJSONRPC), &parley.AuthSpec{Type: parley.AuthBearer, Secret: "env:AGENT_TOKEN"}
	f.mustAdd(t, known)
	if _, err := f.Detect(t.Context(), parley.AgentSpec{Name: new("known"), ProtocolConfig: json.RawMessage(`{"method":"m"}`)}); err != nil || d.anew != 1 {
		t.Error(err)
	}
	if a := d.last(); a.URL != "http://agent.example/" || string(a.Credential.Reveal()) != "from-the-env" || string(a.ProtocolConfig) != `{"method":"m"}` {
		t.Errorf("asked about %+v", a)
	}
	if a, err := f.Get(t.Context(), "known"); err != nil || a.ProtocolConfig != nil || a.Detected != nil {
		t.Errorf("stored %+v, %v", a, err)
	}
	if _, err := f.Detect(t.Context(), parley.AgentSpec{Name: new("nobody")}); parley.CodeOf(err) != parley.CodeNotFound {
		t.Error(err)
	}
	if _, err := f.Detect(t.Context(), parley.AgentSpec{}); parley.CodeOf(err) != parley.CodeInvalid {
		t.Error(err)
	}
}

// What was found holds for an address and its settings: another one is found out
// about anew, or called by its record alone.
func TestAD14_UpdateDetects(t *testing.T) {
	t.Parallel()
	f, d := detecting(t)
	f.mustAdd(t, autoSpec("a"))
	version := func() string {
		t.Helper()
		a, err := f.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		found, _ := parley.ReadDetection(a.Detected)
		return found.Version
	}
	update := func(s parley.AgentSpec) error {
		_, err := f.Update(t.Context(), "a", s)
		return err
	}
	d.found.Version = "0.3"
	if err := update(parley.AgentSpec{Description: new("d"), URL: new("http://agent.example/"), Protocol: new(parley.ProtocolJSONRPC)}); err != nil || version() != "1.0" || len(d.asked) != 1 {
		t.Errorf("nothing that matters changed: %v, %s", err, version())
	}
	if err := update(parley.AgentSpec{URL: new("http://other.example/")}); err != nil || version() != "0.3" || d.last().URL != "http://other.example/" {
		t.Errorf("moved: %v, %s", err, version())
	}
	d.err = parley.Errorf(parley.CodeAgentUnavailable, "nobody there")
	err := update(parley.AgentSpec{URL: new("http://third.example/")})
	if parley.CodeOf(err) != parley.CodeAgentUnavailable || !strings.Contains(err.Error(), "give its protocol too") || version() != "0.3" {
		t.Errorf("out of reach: %v", err)
	}
	if err := update(parley.AgentSpec{URL: new("http://third.example/"), Protocol: new(parley.ProtocolJSONRPC)}); err != nil || version() != "" {
		t.Errorf("with its protocol: %v, %s", err, version())
	}
	asked := len(d.asked)
	if err := update(parley.AgentSpec{URL: new("http://fourth.example/")}); err != nil || len(d.asked) != asked {
		t.Errorf("never found out about: %v", err)
	}
	d.err, d.found.Version = nil, "1.0"
	if err := update(parley.AgentSpec{Protocol: new(parley.ProtocolAuto)}); err != nil || version() != "1.0" || d.anew != 1 {
		t.Errorf("auto: %v, %s", err, version())
	}
	if err := update(parley.AgentSpec{Protocol: new(parley.ProtocolSimpleA2A)}); err != nil || version() != "" {
		t.Errorf("another protocol: %v, %s", err, version())
	}
	if err := update(parley.AgentSpec{Protocol: new(parley.ProtocolAuto)}); err != nil || version() != "1.0" {
		t.Errorf("back: %v, %s", err, version())
	}
	if _, err := f.Update(t.Context(), "nobody", autoSpec("x")); parley.CodeOf(err) != parley.CodeNotFound {
		t.Error(err)
	}
}

// Check says what changed and keeps it, but for the protocol.
func TestAD14_Check(t *testing.T) {
	t.Parallel()
	f, d := detecting(t)
	d.found.InputModes, d.found.CardHash, d.found.Others = []string{"text/plain"}, "h1", []parley.DetectedInterface{}
	f.mustAdd(t, autoSpec("a"))
	check := func(name string, wantStored bool, want ...string) parley.AgentCheck {
		t.Helper()
		c, err := f.Check(t.Context(), name, "ann")
		if diff := cmp.Diff(want, c.Changes); err != nil || diff != "" || c.Stored != wantStored || !c.Health.Healthy {
			t.Errorf("%v, stored %v (-want +got):\n%s", err, c.Stored, diff)
		}
		return c
	}
	check("a", false)
	d.found.Explanation = []string{"otherwise"}
	check("a", false)
	d.found.CardHash = "h2"
	check("a", true, "the card has changed in what does not concern calls")
	if a, err := f.Get(t.Context(), "a"); err != nil || a.UpdatedBy != "ann" {
		t.Errorf("changed by %q, want ann: %v", a.UpdatedBy, err)
	}
	d.found.Version, d.found.InputModes, d.found.Push = "0.3", []string{"text/plain", "application/json"}, true
	d.found.Auth = &parley.AuthProposal{Type: parley.AuthBearer}
	check("a", true, "version: 1.0 → 0.3", "push: false → true", "input modes: text/plain → text/plain, application/json", "what it asks for as authentication has changed")
	if looked, err := f.Lookup(t.Context(), "a"); err != nil || !strings.Contains(string(looked.Detected), `"version":"0.3"`) {
		t.Errorf("calls do not know: %s, %v", looked.Detected, err)
	}
	// Agents that were never found out about stay as they are.
	f.mustAdd(t, spec("simple"))
	check("simple", false, "protocol: simple-a2a → jsonrpc-2.0")
	known := spec("known")
	known.Protocol = new(parley.ProtocolJSONRPC)
	f.mustAdd(t, known)
	check("known", false)
	if d.last().Protocol != parley.ProtocolJSONRPC {
		t.Errorf("asked about %+v", d.last())
	}
	// Whoever changes the record meanwhile wins.
	d.found.Version = "1.0"
	d.during = func() {
		if _, err := f.Update(t.Context(), "a", parley.AgentSpec{URL: new("http://b.example/"), Protocol: new(parley.ProtocolJSONRPC)}); err != nil {
			t.Error(err)
		}
	}
	check("a", false, "version: 0.3 → 1.0")
	d.during = nil
	if a, err := f.Get(t.Context(), "a"); err != nil || a.Detected != nil || a.URL != "http://b.example/" {
		t.Errorf("%+v, %v", a, err)
	}
	d.err = parley.Errorf(parley.CodeAgentUnavailable, "nobody there")
	if c, err := f.Check(t.Context(), "a", "ann"); err != nil || c.Failure == nil || c.Found != nil || c.Stored {
		t.Errorf("%+v, %v", c, err)
	}
	if err := f.Remove(t.Context(), "a", ""); err != nil {
		t.Fatal(err)
	}
	if c, err := f.Check(t.Context(), "a", "ann"); err != nil || c.Health.Healthy || c.Found != nil || c.Failure != nil {
		t.Errorf("deleted: %+v, %v", c, err)
	}
	if _, err := f.Check(t.Context(), "nobody", "ann"); parley.CodeOf(err) != parley.CodeNotFound {
		t.Error(err)
	}
	if _, err := newFixture(t).Check(t.Context(), "nobody", "ann"); err == nil {
		t.Error("no error")
	}
}

// What is declared in a file keeps what was found out.
func TestAD14_DeclareKeepsDetection(t *testing.T) {
	t.Parallel()
	f, _ := detecting(t)
	f.mustAdd(t, autoSpec("a"))
	file := "agents: [{name: a, url: 'http://agent.example/', protocol: jsonrpc-2.0}]"
	if counts, err := f.declare(t, file); err != nil || counts != [3]int{0, 0, 1} {
		t.Errorf("%v, %v", counts, err)
	}
	if counts, err := f.declare(t, strings.Replace(file, "agent.example", "other.example", 1)); err != nil || counts != [3]int{0, 1, 0} {
		t.Errorf("%v, %v", counts, err)
	}
	if a, err := f.Get(t.Context(), "a"); err != nil || a.Detected != nil {
		t.Errorf("%s, %v", a.Detected, err)
	}
	_, err := f.Add(t.Context(), autoSpec("a"))
	if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeConflict {
		t.Error(err)
	}
}

// A client secret that was sealed goes to the token endpoint that it was given
// for, whoever asks: neither a detection nor a change takes it to another one.
func TestSealedSecretStaysWithItsTokenEndpoint(t *testing.T) {
	t.Parallel()
	f, d := detecting(t)
	s := spec("a")
	s.Auth = &parley.AuthSpec{Type: parley.AuthOAuth2, Literal: secretOf("h1dden"), OAuth2: oauth()}
	f.mustAdd(t, s)
	elsewhere := func(secret string) parley.AgentSpec {
		return parley.AgentSpec{Auth: &parley.AuthSpec{
			Type: parley.AuthOAuth2, Secret: secret, OAuth2: &parley.OAuth2{TokenURL: "https://evil.example/token", ClientID: "me"},
		}}
	}
	for _, secret := range []string{"", registry.Sealed} {
		asking := elsewhere(secret)
		asking.Name = new("a")
		if _, err := f.Detect(t.Context(), asking); err == nil || strings.Join(pathsOf(t, err), " ") != "auth.secret" || len(d.asked) != 0 {
			t.Errorf("detection with %q: %v", secret, err)
		}
		if _, err := f.Update(t.Context(), "a", elsewhere(secret)); err == nil || strings.Join(pathsOf(t, err), " ") != "auth.secret" {
			t.Errorf("change with %q: %v", secret, err)
		}
	}
	// Who knows it may move it, in a file, too; a reference anybody can give.
	moved := elsewhere("")
	moved.Name, moved.URL = new("a"), new("http://agent.example")
	moved.Auth.Literal = secretOf("h1dden")
	if _, updated, _, err := f.Declare(t.Context(), []parley.AgentSpec{moved}); err != nil || updated != 1 {
		t.Errorf("%d, %v", updated, err)
	}
	if a, err := f.Lookup(t.Context(), "a"); err != nil || a.Auth.OAuth2.TokenURL != "https://evil.example/token" || string(a.Credential.Reveal()) != "h1dden" {
		t.Errorf("%+v, %v", a.Auth, err)
	}
	if _, err := f.Update(t.Context(), "a", parley.AgentSpec{Auth: &parley.AuthSpec{Type: parley.AuthOAuth2, Secret: "env:AGENT_TOKEN", OAuth2: oauth()}}); err != nil {
		t.Error(err)
	}
	if _, err := f.Update(t.Context(), "a", elsewhere("")); err != nil {
		t.Error(err)
	}
}
