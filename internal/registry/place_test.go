package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// TestAD14_Places proves which URLs agents on stdio and WebSocket may have, how
// they are stored, and that only protocol jsonrpc-2.0 has them.
func TestAD14_Places(t *testing.T) {
	const long = 2083
	for _, tt := range []struct {
		url, stored string // stored is "" for what is refused
	}{
		{"stdio:python agent.py", "stdio:python agent.py"},
		{"STDIO:  python  'my agent.py' ", "stdio:python  'my agent.py'"},
		{`stdio:"C:\agents\a.exe" -x "say \"hi\" \\"`, `stdio:"C:\agents\a.exe" -x "say \"hi\" \\"`},
		{"stdio:env KEY=user@host ./run", "stdio:env KEY=user@host ./run"},
		{"stdio:" + strings.Repeat("x", long-6), "stdio:" + strings.Repeat("x", long-6)},
		{"stdio:" + strings.Repeat("x", long-5), ""},
		{"stdio:", ""},
		{"stdio: \t", ""},
		{"stdio:'' x", ""},
		{`stdio:"" x`, ""},
		{"stdio:python 'agent.py", ""},
		{`stdio:python "agent.py\"`, ""},
		{"stdio:python\nagent.py", ""},
		{"stdio:python \x00", ""},
		{"stdio:python \xff", ""},
		{"stdio+lsp:python", ""},
		{"ws://Agent.Example", "ws://agent.example/"},
		{"WSS://agent.example:9000/rpc?x=1", "wss://agent.example:9000/rpc?x=1"},
		{"wss://", ""},
		{"ws://ann:pw@agent.example/", ""},
		{"ws://agent.example:0/", ""},
	} {
		f := newFixture(t)
		s := spec("a")
		s.URL, s.Protocol = &tt.url, new(parley.ProtocolJSONRPC)
		a, err := f.Add(t.Context(), s)
		switch {
		case tt.stored != "" && (err != nil || a.URL != tt.stored):
			t.Errorf("%q is stored as %q, %v, want %q", tt.url, a.URL, err, tt.stored)
		case tt.stored == "" && err == nil:
			t.Errorf("%q is accepted", tt.url)
		case tt.stored == "":
			if diff := cmp.Diff([]string{"url"}, pathsOf(t, err)); diff != "" {
				t.Errorf("%q: %v (-want +got):\n%s", tt.url, err, diff)
			}
			if strings.Contains(err.Error(), "pw") {
				t.Errorf("%q: the error quotes it: %v", tt.url, err)
			}
		}
		if tt.stored == "" {
			continue
		}
		s.Name, s.Protocol = new("b"), new(parley.ProtocolSimpleA2A)
		if _, err := f.Add(t.Context(), s); err == nil || !strings.Contains(err.Error(), "are for jsonrpc-2.0") {
			t.Errorf("%q with simple-a2a: %v, want a refusal that says why", tt.url, err)
		}
		if _, err := f.Update(t.Context(), "a", parley.AgentSpec{Protocol: new(parley.ProtocolSimpleA2A)}); err == nil {
			t.Errorf("%q: the record changes to simple-a2a", tt.url)
		}
	}
}

// TestAD14_ProcessCredentials proves that a program is registered only with
// credentials that it can be given.
func TestAD14_ProcessCredentials(t *testing.T) {
	for kind, ok := range map[parley.AuthType]bool{parley.AuthNone: true, parley.AuthHeader: true, parley.AuthBearer: false} {
		f := newFixture(t)
		s := spec("a")
		s.URL, s.Protocol = new("stdio:agent"), new(parley.ProtocolJSONRPC)
		s.Auth = &parley.AuthSpec{Type: kind, Secret: "env:AGENT_TOKEN"}
		switch kind {
		case parley.AuthNone:
			s.Auth.Secret = ""
		case parley.AuthHeader:
			s.Auth.Header = "AGENT_TOKEN"
		}
		_, err := f.Add(t.Context(), s)
		if ok != (err == nil) {
			t.Errorf("%s: %v", kind, err)
		}
		if !ok && !strings.Contains(err.Error(), "environment variables") {
			t.Errorf("%s: %v, want what to do", kind, err)
		}
	}
}
