package agentcard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge/a2a/agentcard"
)

const (
	newPath = "/.well-known/agent-card.json"
	oldPath = "/.well-known/agent.json"
)

// card03 and card10 are the shortest cards of their kind, with more members.
func card03(more string) string { return `{"name":"N","protocolVersion":"0.3.0"` + more + `}` }

func card10(interfaces string, more ...string) string {
	return `{"name":"N","supportedInterfaces":[` + interfaces + `]` + strings.Join(more, "") + `}`
}

func iface(url, binding, version string) string {
	return `{"url":"` + url + `","protocolBinding":"` + binding + `","protocolVersion":"` + version + `"}`
}

// TestAD14_Choice: which interface of a card is called, and what is said about it.
func TestAD14_Choice(t *testing.T) {
	t.Parallel()
	const h = "https://a.example"
	for _, tt := range []struct {
		name, agent, config, card string
		// want is "binding version url [tenant]", or the code of the error.
		want, line string
	}{
		{"0.3", h + "/", ``, card03(`,"url":"https://a.example/rpc"`), "JSONRPC 0.3 https://a.example/rpc", "interface 1 (JSONRPC 0.3) is taken"},
		{"0.2.5 with its first transport", h + "/", ``, `{"name":"N","protocolVersion":"0.2.5","url":"https://a.example/rpc","preferredTransport":"JSONRPC"}`, "JSONRPC 0.3 https://a.example/rpc", ""},
		{"0.3 over gRPC first", h + "/", ``, card03(`,"url":"https://a.example:50051","preferredTransport":"GRPC","additionalInterfaces":[{"url":"https://a.example/r","transport":"JSONRPC"}]`), "JSONRPC 0.3 https://a.example/r", "interface 1 (GRPC 0.3.0) not taken: GRPC is spoken here in A2A 1.0 only"},
		{"0.3 over gRPC only", h + "/", ``, card03(`,"url":"https://a.example:50051","preferredTransport":"GRPC"`), "agent_rejected", ""},
		{"1.0", h + "/", ``, card10(iface(h+"/rpc", "JSONRPC", "1.0")), "JSONRPC 1.0 https://a.example/rpc", ""},
		{"the newest dialect, then the card's order", h + "/", ``, card10(iface(h+"/old", "JSONRPC", "0.3") + "," + iface(h+"/rest", "HTTP+JSON", "1.0") + "," + iface(h+"/rpc", "JSONRPC", "1.0")), "HTTP+JSON 1.0 https://a.example/rest", ""},
		{"1.1 is spoken to in 1.0", h + "/", ``, card10(iface(h+"/rpc", "JSONRPC", "1.1")), "JSONRPC 1.0 https://a.example/rpc", ""},
		{"a version of the future", h + "/", ``, card10(iface(h+"/n", "JSONRPC", "2.0") + "," + iface(h+"/rpc", "JSONRPC", "0.3")), "JSONRPC 0.3 https://a.example/rpc", "interface 1 (JSONRPC 2.0) not taken: this version is not spoken here"},
		{"0.1", h + "/", ``, card10(iface(h+"/n", "JSONRPC", "0.1")), "agent_rejected", ""},
		{"a binding that nobody knows", h + "/", ``, card10(iface(h+"/n", "https://x.example/mqtt", "1.0") + "," + iface(h+"/rpc", "JSONRPC", "1.0")), "JSONRPC 1.0 https://a.example/rpc", "(https://x.example/mqtt 1.0) not taken: this binding is not spoken here"},
		{"a union is 1.0", h + "/", ``, card03(`,"url":"https://a.example/old","supportedInterfaces":[` + iface(h+"/rpc", "JSONRPC", "1.0") + `]`), "JSONRPC 1.0 https://a.example/rpc", ""},
		{"an empty list is 0.3", h + "/", ``, card03(`,"url":"https://a.example/old","supportedInterfaces":[]`), "JSONRPC 0.3 https://a.example/old", ""},
		{"a URL without a path", h + "/x", ``, card10(iface(h, "JSONRPC", "1.0") + "," + iface(h+"/x", "JSONRPC", "0.3")), "JSONRPC 1.0 https://a.example/", ""},
		{"tenant", h + "/", ``, card10(`{"url":"https://a.example/r","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t1"}`), "JSONRPC 1.0 https://a.example/r t1", ""},
		{"gRPC by host and port", h + "/", ``, card10(iface("a.example:443", "GRPC", "1.0")), "GRPC 1.0 https://a.example:443", ""},
		{"gRPC by URL", h + "/", ``, card10(iface("grpcs://a.example:443", "GRPC", "1.0")), "GRPC 1.0 https://a.example:443", ""},
		{"gRPC without a port", h + "/", ``, card10(iface("a.example", "GRPC", "1.0")), "agent_rejected", "its URL is no host and port"},
		{"a relative URL", h + "/x", ``, card10(iface("rpc", "JSONRPC", "1.0")), "JSONRPC 1.0 https://a.example/x/rpc", ""},
		{"a URL from the host's root", h + "/x", ``, card10(iface("/y/rpc", "JSONRPC", "1.0")), "JSONRPC 1.0 https://a.example/y/rpc", ""},
		{"no URL", h + "/x", ``, card03(""), "JSONRPC 0.3 https://a.example/x", ""},

		{"another host", h + "/", ``, card10(iface("https://b.example/rpc", "JSONRPC", "1.0")), "agent_rejected", "it is on another host (b.example) than the agent (a.example); if that is right, set protocol_config.url to it"},
		{"another host, then ours", h + "/", ``, card10(iface("https://b.example/rpc", "JSONRPC", "1.0") + "," + iface(h+"/rpc", "JSONRPC", "0.3")), "JSONRPC 0.3 https://a.example/rpc", "another host"},
		{"another host, pinned", h + "/", `{"url":"https://b.example/rpc"}`, card10(iface("https://b.example/rpc", "JSONRPC", "1.0")), "JSONRPC 1.0 https://b.example/rpc", "pinned in protocol_config: url https://b.example/rpc"},
		{"a subdomain is another host", h + "/", ``, card10(iface("https://x.a.example/rpc", "JSONRPC", "1.0")), "agent_rejected", ""},
		{"the host with a user", h + "/", ``, card10(iface("https://a.example@b.example/rpc", "JSONRPC", "1.0")), "agent_rejected", "its URL holds a user name"},
		{"without TLS", h + "/", ``, card10(iface("http://a.example/rpc", "JSONRPC", "1.0")), "agent_rejected", "it is without TLS"},
		{"without TLS as registered", "http://127.0.0.1:1/", ``, card10(iface("http://localhost:2/rpc", "JSONRPC", "1.0")), "JSONRPC 1.0 http://127.0.0.1:2/rpc", ""},
		{"an address for listening", "http://127.0.0.1:1/", ``, card10(iface("http://0.0.0.0:2/rpc", "JSONRPC", "1.0")), "JSONRPC 1.0 http://127.0.0.1:2/rpc", "is no address to call"},
		{"loopback from outside", h + "/", ``, card10(iface("https://127.0.0.1/rpc", "JSONRPC", "1.0")), "agent_rejected", "another host"},
		{"another scheme", h + "/", ``, card10(iface("file:///etc/passwd", "JSONRPC", "1.0")), "agent_rejected", `the scheme "file"`},

		{"binding pinned", h + "/", `{"binding":"jsonrpc"}`, card10(iface(h+"/rest", "HTTP+JSON", "1.0") + "," + iface(h+"/rpc", "JSONRPC", "0.3")), "JSONRPC 0.3 https://a.example/rpc", "protocol_config.binding is JSONRPC"},
		{"version pinned", h + "/", `{"a2a":"0.3"}`, card10(iface(h+"/new", "JSONRPC", "1.0") + "," + iface(h+"/rpc", "JSONRPC", "0.3")), "JSONRPC 0.3 https://a.example/rpc", ""},
		{"version pinned against the card", h + "/", `{"a2a":"1.0"}`, card03(`,"url":"https://a.example/rpc"`), "JSONRPC 1.0 https://a.example/rpc", "protocol_config.a2a goes before the card"},
		{"version pinned beside one of the future", h + "/", `{"a2a":"1.0"}`, card10(iface(h+"/rpc", "JSONRPC", "7")), "JSONRPC 1.0 https://a.example/rpc", ""},
		{"tenant pinned", h + "/", `{"tenant":"t2"}`, card10(`{"url":"https://a.example/r","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t1"}`), "JSONRPC 1.0 https://a.example/r t2", ""},
		{"no tenant pinned", h + "/", `{"tenant":""}`, card10(`{"url":"https://a.example/r","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t1"}`), "JSONRPC 1.0 https://a.example/r", ""},
		{"auto pins nothing", h + "/", `{"a2a":"auto"}`, card03(`,"url":"https://a.example/rpc"`), "JSONRPC 0.3 https://a.example/rpc", ""},
		{"everything pinned and nothing in the card", h + "/", `{"a2a":"1.0","url":"https://b.example/","binding":"GRPC"}`, card03(`,"url":"https://a.example/rpc"`), "GRPC 1.0 https://b.example/", ""},
		{"a WebSocket", "wss://a.example/ws", ``, card10(iface(h+"/rest", "HTTP+JSON", "1.0")), "JSONRPC 1.0 wss://a.example/ws", "over its WebSocket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, newPath) {
					_, _ = io.WriteString(w, tt.card)
				}
			})
			r := newRig(t, map[string]http.Handler{"a.example": page, "127.0.0.1:1": page})
			f, err := r.Detect(t.Context(), agentAt(tt.agent, tt.config))
			got := strings.TrimSpace(f.Binding + " " + f.Version + " " + f.URL + " " + f.Tenant)
			lines := f.Explanation
			if err != nil {
				got, lines = string(parley.CodeOf(err)), []string{err.Error()}
				var d struct {
					Explanation []string `json:"explanation"`
				}
				if e, ok := errors.AsType[*parley.Error](err); !ok || json.Unmarshal(e.Details, &d) != nil || len(d.Explanation) == 0 {
					t.Errorf("the error has no explanation: %v", err)
				}
			} else if f.Protocol != parley.ProtocolJSONRPC {
				t.Errorf("protocol %q", f.Protocol)
			}
			if got != tt.want || !has(lines, tt.line) {
				t.Errorf("%q, want %q, with %q in:\n%s", got, tt.want, tt.line, strings.Join(lines, "\n"))
			}
		})
	}
}

// TestAD14_CardPlaces: where the card is looked for, in which order.
func TestAD14_CardPlaces(t *testing.T) {
	t.Parallel()
	good := card03(`,"url":"https://a.example/a/b"`)
	other := card03(`,"url":"https://a.example/other"`)
	for _, tt := range []struct {
		name, agent string
		pages       map[string]string
		want        string   // the card's URL, "" is none
		asked       []string // paths, "" is not checked
	}{
		{"new place", "https://a.example/", map[string]string{newPath: good}, newPath, []string{newPath}},
		{"old place", "https://a.example", map[string]string{oldPath: good}, oldPath, []string{newPath, oldPath}},
		{"below the agent's path first", "https://a.example/a/b/", map[string]string{"/a/b" + oldPath: good, newPath: good}, "/a/b" + oldPath, []string{"/a/b" + newPath, "/a/b" + oldPath}},
		{"at the root of the host", "https://a.example/a/b", map[string]string{newPath: good}, newPath, []string{"/a/b" + newPath, "/a/b" + oldPath, newPath}},
		{"that of another agent", "https://a.example/a/b", map[string]string{newPath: other}, "", nil},
		{"that of another agent, of a host's own", "https://a.example/a/b", map[string]string{newPath: card03(`,"url":"https://a.example/"`)}, "", nil},
		{"without an address it is ours", "https://a.example/a/b", map[string]string{newPath: card03("")}, newPath, nil},
		{"its own address", "https://a.example/a/b" + newPath, map[string]string{"/a/b" + newPath: good}, "/a/b" + newPath, []string{"/a/b" + newPath}},
		{"an address of any name", "https://a.example/cards/mine.json", map[string]string{"/cards/mine.json": good}, "/cards/mine.json", []string{"/cards/mine.json"}},
		{"a page for everything", "https://a.example/", map[string]string{newPath: "<html>hi", oldPath: "<html>hi"}, "", nil},
		{"JSON that is no card", "https://a.example/", map[string]string{newPath: `{"name":"N"}`, oldPath: `[1]`}, "", nil},
		{"too large", "https://a.example/", map[string]string{newPath: `{"name":"N","skills":["` + strings.Repeat("x", agentcard.MaxBody) + `"]}`}, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, map[string]http.Handler{"a.example": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				switch page, ok := tt.pages[req.URL.Path]; {
				case ok && req.Method == http.MethodGet:
					if v := req.Header.Values("A2A-Version"); len(v) != 1 || v[0] != "1.0" {
						t.Errorf("version header: %v", v)
					}
					_, _ = io.WriteString(w, page)
				case req.Method == http.MethodPost:
					http.Error(w, "task_id is missing", http.StatusBadRequest)
				default:
					http.NotFound(w, req)
				}
			})})
			f, err := r.Detect(t.Context(), agentAt(tt.agent))
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want != "" {
				want = "https://a.example" + want
			}
			if f.CardURL != want || (want == "") != (f.Protocol == parley.ProtocolSimpleA2A) {
				t.Errorf("card %q, want %q, protocol %s:\n%s", f.CardURL, want, f.Protocol, strings.Join(f.Explanation, "\n"))
			}
			var paths []string
			for _, line := range r.lines() {
				paths = append(paths, strings.TrimPrefix(line, "GET "))
			}
			if tt.asked != nil && cmp.Diff(tt.asked, paths) != "" {
				t.Errorf("asked for %v, want %v", paths, tt.asked)
			}
		})
	}
}

// A card that cannot be had now is not a card that does not exist.
func TestAD14_CardOutOfReach(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusServiceUnavailable: "agent_unavailable", http.StatusTooManyRequests: "agent_unavailable", http.StatusBadGateway: "agent_unavailable",
		http.StatusUnauthorized: "agent_rejected", http.StatusFound: "agent_rejected", http.StatusInternalServerError: "simple-a2a",
	} {
		r := newRig(t, map[string]http.Handler{"a.example": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://b.example/")
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(status)
		})})
		f, err := r.Detect(t.Context(), agentAt("https://a.example/"))
		got := f.Protocol
		if err != nil {
			got = string(parley.CodeOf(err))
		}
		if got != want {
			t.Errorf("%d: %s, %v, want %s", status, got, err, want)
		}
	}
	r := newRig(t, nil)
	_, err := r.Detect(t.Context(), agentAt("https://a.example/"))
	if e, ok := errors.AsType[*parley.Error](err); !ok || e.Code != parley.CodeAgentUnavailable || !e.Retryable {
		t.Errorf("nobody there: %v", err)
	}
	for _, address := range []string{"ftp://a.example/", "https://", "https://u:p@a.example/", "%zz", ""} {
		if _, err := r.Detect(t.Context(), agentAt(address)); parley.CodeOf(err) != parley.CodeInvalid {
			t.Errorf("%q: %v", address, err)
		}
	}
	if f, err := r.Detect(t.Context(), agentAt("stdio:python 'agent %zz'", `{"a2a":"1.0","tenant":"t"}`)); err != nil || f.Version != "1.0" || f.URL != "stdio:python 'agent %zz'" || f.Tenant != "t" {
		t.Errorf("stdio: %+v, %v", f, err)
	}
	// What is pinned needs no card.
	f, err := r.Detect(t.Context(), agentAt("https://a.example/", `{"a2a":"1.0","url":"https://a.example/r","binding":"HTTP+JSON"}`))
	if err != nil || f.Version != "1.0" || f.Binding != "HTTP+JSON" || !has(f.Explanation, "the card could not be fetched") {
		t.Errorf("pinned: %+v, %v", f, err)
	}
}

// The card is fetched once, asked for changes when it is old, and a failure is
// not repeated at once.
func TestAD14_CardCache(t *testing.T) {
	t.Parallel()
	control, etag, status := "max-age=60", `"v1"`, http.StatusOK
	r := newRig(t, map[string]http.Handler{"a.example": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Cache-Control", control)
		w.Header().Set("ETag", etag)
		switch {
		case status != http.StatusOK:
			w.WriteHeader(status)
		case req.Header.Get("If-None-Match") == etag:
			w.WriteHeader(http.StatusNotModified)
		default:
			_, _ = io.WriteString(w, card03(`,"url":"/rpc","version":`+strings.ReplaceAll(etag, "v", "")))
		}
	})})
	a := agentAt("https://a.example/")
	detect := func(wantVersion string, wantAsked int) agentcard.Found {
		t.Helper()
		f, err := r.Detect(t.Context(), a)
		if got := r.lines(); err != nil || f.AgentVersion != wantVersion || len(got) != wantAsked {
			t.Errorf("version %q, asked %v, %v", f.AgentVersion, got, err)
		}
		return f
	}
	first := detect("1", 1)
	r.clock.pass(59 * time.Second)
	detect("1", 0)
	r.clock.pass(2 * time.Second)
	if f := detect("1", 1); !has(f.Explanation, "has not changed") || f.CardHash != first.CardHash || f.ETag != `"v1"` {
		t.Errorf("%+v", f)
	}
	etag = `"v2"`
	detect("1", 0)
	if f, err := r.Refresh(t.Context(), a); err != nil || f.AgentVersion != "2" || f.CardHash == first.CardHash {
		t.Errorf("refreshed: %+v, %v", f, err)
	}
	r.lines()
	control = "no-store"
	if _, err := r.Refresh(t.Context(), a); err != nil {
		t.Error(err)
	}
	r.lines()
	r.clock.pass(29 * time.Second)
	detect("2", 0)
	r.clock.pass(2 * time.Second)
	detect("2", 1)

	// Another credential is another view of the card.
	b := a
	b.Credential = parley.NewSecret([]byte("x"))
	if _, err := r.Detect(t.Context(), b); err != nil || len(r.lines()) != 1 {
		t.Errorf("another credential: %v", err)
	}

	r.clock.pass(time.Minute)
	status = http.StatusServiceUnavailable
	for _, want := range []int{1, 0} {
		if _, err := r.Detect(t.Context(), a); parley.CodeOf(err) != parley.CodeAgentUnavailable || len(r.lines()) != want {
			t.Errorf("out of reach: %v", err)
		}
	}
	status = http.StatusOK
	r.clock.pass(6 * time.Second)
	detect("2", 1)
}

// Many callers at once make one inquiry; one who leaves does not spoil it.
func TestAD14_CardFetchedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, map[string]http.Handler{"a.example": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			_, _ = io.WriteString(w, card03(`,"url":"/rpc"`))
		})})
		gone, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ctx := t.Context()
				if i%2 == 1 {
					ctx = gone
				}
				if _, err := r.Detect(ctx, agentAt("https://a.example/")); err != nil && i%2 == 0 {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		wg.Wait()
		// Two, if the first was one of those who left.
		if n := len(r.lines()); n < 1 || n > 2 {
			t.Errorf("%d inquiries", n)
		}
	})
}

// What is stored of a card is bounded, whatever the card says.
func TestDetectionIsBounded(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 64 {
		list = append(list, iface(fmt.Sprintf("https://a.example/%d/%s", i, strings.Repeat("x", 1900)), "JSONRPC", "1.0"),
			iface("https://b.example/", strings.Repeat("y", 1000), "1.0"))
	}
	for _, order := range []bool{true, false} {
		if !order {
			slices.Reverse(list)
		}
		page := serve(newPath, card10(strings.Join(list, ",")))
		f, err := newRig(t, map[string]http.Handler{"a.example": page}).Detect(t.Context(), agentAt("https://a.example/"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(f)
		last := f.Explanation[len(f.Explanation)-1]
		if len(b) > 64<<10 || len(f.Others) != 8 || len(f.Explanation) > 42 || !strings.Contains(last, "is taken") {
			t.Errorf("%d bytes, %d others, %d lines that end in %.80q", len(b), len(f.Others), len(f.Explanation), last)
		}
	}
}

// An agent that refuses its dialect is asked for another one once more.
func TestAD14_Renegotiate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, card, config, tried, want string }{
		{"the card has the other", card10(iface("/new", "JSONRPC", "1.0") + "," + iface("/old", "JSONRPC", "0.3")), ``, "1.0", "JSONRPC 0.3 https://a.example/old"},
		{"the card lies", card03(`,"url":"/rpc"`), ``, "0.3", "JSONRPC 1.0 https://a.example/rpc"},
		{"the card lies the other way", card10(iface("/rpc", "JSONRPC", "1.0")), ``, "1.0", "JSONRPC 0.3 https://a.example/rpc"},
		{"no other over REST", card10(iface("/rest", "HTTP+JSON", "1.0")), ``, "1.0", "agent_rejected"},
		{"no card", "", ``, "0.3", "JSONRPC 1.0 https://a.example/"},
		{"pinned", card03(`,"url":"/rpc"`), `{"a2a":"0.3"}`, "0.3", "agent_rejected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			page := http.NotFoundHandler()
			if tt.card != "" {
				page = serve(newPath, tt.card)
			}
			r := newRig(t, map[string]http.Handler{"a.example": page})
			a := agentAt("https://a.example/", tt.config)
			f, err := r.Renegotiate(t.Context(), a, tt.tried)
			got := f.Binding + " " + f.Version + " " + f.URL
			if err != nil {
				got = string(parley.CodeOf(err))
			}
			if got != tt.want {
				t.Errorf("%q, want %q: %v", got, tt.want, err)
			}
			if again, err := r.Detect(t.Context(), a); tt.config == "" && err == nil && again.Version != f.Version {
				t.Errorf("forgotten: %v", again)
			}
			r.lines()
			if again, err := r.Renegotiate(t.Context(), a, tt.tried); err == nil && (again.Version != f.Version || len(r.lines()) != 0) {
				t.Errorf("asked once more: %v", again)
			}
		})
	}
}
