package agentcard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/sample"
)

func rpcError(code, message string) string {
	return `{"jsonrpc":"2.0","id":"1","error":{"code":` + code + `,"message":"` + message + `"}}`
}

// byMethod answers a question in 0.3 and one in 1.0.
func byMethod(old, modern string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := new(strings.Builder)
		_, _ = copyTo(body, r)
		switch text := body.String(); {
		case r.Method != http.MethodPost:
			http.NotFound(w, r)
		case strings.Contains(text, "message/send"), strings.Contains(text, "SendMessage"), strings.Contains(text, `"message"`):
			http.Error(w, "executed", http.StatusTeapot)
		case strings.Contains(text, `"tasks/get"`) && r.Header.Get("A2A-Version") == "":
			_, _ = w.Write([]byte(old))
		case strings.Contains(text, `"GetTask"`) && r.Header.Get("A2A-Version") == "1.0":
			_, _ = w.Write([]byte(modern))
		default:
			http.Error(w, "neither", http.StatusTeapot)
		}
	})
}

// TestAD14_Probe: what an agent without a card is taken for.
func TestAD14_Probe(t *testing.T) {
	t.Parallel()
	unknown, missing, wrong := rpcError("-32601", "Method not found"), rpcError("-32001", "Task not found"), rpcError("-32009", "Version")
	for _, tt := range []struct {
		name  string
		agent http.Handler
		want  string // "protocol version", or a code
		posts int
		line  string
	}{
		{"0.3", byMethod(missing, unknown), "jsonrpc-2.0 0.3", 1, "A2A 0.3"},
		{"both: the first that is known", byMethod(missing, missing), "jsonrpc-2.0 0.3", 1, ""},
		{"1.0", byMethod(unknown, missing), "jsonrpc-2.0 1.0", 2, "A2A 1.0"},
		{"1.0 that wants a version", byMethod(wrong, missing), "jsonrpc-2.0 1.0", 2, ""},
		{"1.0 with odd codes", byMethod(unknown, rpcError("-32602", "id")), "jsonrpc-2.0 1.0", 2, "error -32602"},
		{"only message/send", byMethod(unknown, unknown), "jsonrpc-2.0 0.3", 2, "knows neither"},
		{"a bundle that loses its error classes", byMethod(rpcError("-32603", "Task not found: x"), unknown), "jsonrpc-2.0 0.3", 2, "does not show its dialect"},
		{"the same answer to everything", says(400, rpcError("-32600", "Invalid Request")), "jsonrpc-2.0 0.3", 2, "does not show its dialect"},
		{"a method is not looked at", says(200, `{"jsonrpc":"2.0","id":"1","result":{"kind":"task"}}`), "jsonrpc-2.0 0.3", 1, "seems not to look at the method"},
		{"a result that is null", says(200, `{"jsonrpc":"2.0","id":"1","result":null}`), "jsonrpc-2.0 0.3", 1, ""},
		{"it wants authentication of its own kind", byMethod(rpcError("-31401", "unauthenticated"), rpcError("-31401", "unauthenticated")), "jsonrpc-2.0 0.3", 2, ""},

		{"Simple A2A that refuses", says(400, "task_id is missing"), "simple-a2a ", 1, "Simple A2A"},
		{"Simple A2A with a framework", says(422, `{"detail":[{"loc":["body","task_id"]}]}`), "simple-a2a ", 1, ""},
		{"Simple A2A that stumbles", says(500, "<html>Internal Server Error"), "simple-a2a ", 1, ""},
		{"Simple A2A with its own error", says(200, `{"task_id":null,"status":"error","output":null,"error":"no input"}`), "simple-a2a ", 1, ""},
		{"Simple A2A that checks nothing", says(200, `{"task_id":null,"status":"success","output":{}}`), "simple-a2a ", 1, "seems not to check"},
		{"JSON of another kind", says(200, `{"ok":true}`), "simple-a2a ", 1, ""},
		{"an error like JSON-RPC's", says(400, `{"error":{"code":-32601,"message":"x"}}`), "simple-a2a ", 1, ""},
		{"an echo", says(400, `{"jsonrpc":"2.0","id":"1","method":"tasks/get"}`), "simple-a2a ", 1, ""},

		{"credentials", says(401, `{}`), "agent_rejected", 1, "HTTP 401 (Bearer)"},
		{"forbidden", says(403, ``), "agent_rejected", 1, "HTTP 403"},
		{"nothing there", says(404, "<html>"), "agent_rejected", 1, "HTTP 404 with a web page; check the URL"},
		{"not for a POST", says(405, ""), "agent_rejected", 1, "with nothing"},
		{"a web page", says(200, "<html>welcome"), "agent_rejected", 1, "a web page"},
		{"a text", says(200, "welcome"), "agent_rejected", 1, "text"},
		{"busy", says(503, ""), "agent_unavailable", 1, "try again later"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]http.Handler{"a.example": tt.agent})
			f, err := r.Detect(t.Context(), agentAt("https://a.example/x"))
			got, lines := f.Protocol+" "+f.Version, f.Explanation
			if err != nil {
				got, lines = string(parley.CodeOf(err)), []string{err.Error()}
			}
			posts := 0
			for _, line := range r.lines() {
				if line == "POST /x" {
					posts++
				}
			}
			if got != tt.want || posts != tt.posts || !has(lines, tt.line) {
				t.Errorf("%q after %d posts, want %q after %d, with %q in:\n%s", got, posts, tt.want, tt.posts, tt.line, strings.Join(lines, "\n"))
			}
			// Whoever is known to speak JSON-RPC is not turned into something else.
			known := agentAt("https://a.example/x")
			known.Protocol = parley.ProtocolJSONRPC
			if f, err := r.Detect(t.Context(), known); err == nil && f.Protocol != parley.ProtocolJSONRPC {
				t.Errorf("of %s: %v", known.Protocol, f)
			}
		})
	}
}

// An interface without a version is asked; a pinned one is not.
func TestAD14_ProbeOfAnInterface(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, config, card, want string
		old, modern              string
		posts                    int
	}{
		{"answers", ``, card10(iface("/rpc", "JSONRPC", "")), "1.0", rpcError("-32601", ""), rpcError("-32001", ""), 2},
		{"an old card", ``, `{"name":"N","url":"/rpc","skills":[]}`, "0.3", rpcError("-32001", ""), rpcError("-32601", ""), 1},
		{"answers nothing of use", ``, card10(iface("/rpc", "JSONRPC", "")), "0.3", "<html>", "<html>", 1},
		{"pinned", `{"a2a":"1.0"}`, card10(iface("/rpc", "JSONRPC", "")), "1.0", "", "", 0},
		{"another interface has one", ``, card10(iface("/rpc", "JSONRPC", "") + "," + iface("/new", "JSONRPC", "1.0")), "1.0", "", "", 0},
		{"over REST", ``, card10(iface("/rest", "HTTP+JSON", "")), "1.0", "", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.Handle(newPath, serve(newPath, tt.card))
			mux.Handle("/rpc", byMethod(tt.old, tt.modern))
			r := newRig(t, map[string]http.Handler{"a.example": mux})
			f, err := r.Detect(t.Context(), agentAt("https://a.example/", tt.config))
			posts := strings.Count(strings.Join(r.lines(), "\n"), "POST")
			if err != nil || f.Version != tt.want || posts != tt.posts {
				t.Errorf("%q after %d posts, %v, want %q after %d", f.Version, posts, err, tt.want, tt.posts)
			}
		})
	}
}

// TestAD14_ProbeExecutesNothing: neither sample agent, nor a scripted one that
// does whatever it is sent, gets work.
func TestAD14_ProbeExecutesNothing(t *testing.T) {
	t.Parallel()
	scripted := sample.NewScripted(sample.Script{})
	for _, tt := range []struct {
		name  string
		agent http.Handler
		want  string
	}{
		{"greeter", sample.Greeter(), "simple-a2a "},
		{"polisher without its card", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				http.NotFound(w, r)
				return
			}
			sample.Polisher("").ServeHTTP(w, r)
		}), "jsonrpc-2.0 0.3"},
		{"polisher", sample.Polisher("https://a.example/polisher"), "jsonrpc-2.0 0.3"},
		{"scripted", scripted, "jsonrpc-2.0 0.3"},
	} {
		r := newRig(t, map[string]http.Handler{"a.example": tt.agent})
		f, err := r.Detect(t.Context(), agentAt("https://a.example/polisher"))
		if got := f.Protocol + " " + f.Version; err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
		for _, a := range r.asked {
			if strings.Contains(a.body, "message") || strings.Contains(a.body, "input") || strings.Contains(a.body, "Send") || strings.Contains(a.body, "task_id") {
				t.Errorf("%s was sent %s", tt.name, a.body)
			}
		}
	}
	if tasks, sent := scripted.Log.Tasks(); tasks != 0 || sent != 0 {
		t.Errorf("the scripted agent worked: %v", scripted.Log.All())
	}
}
