package agentcore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/agentcore"
	"github.com/parley-project/parley/internal/zone/agentcore/agentcoretest"
	"github.com/parley-project/parley/internal/zone/direct"
)

const (
	region  = "us-west-2"
	runtime = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/exec-AbC123"
	good    = `{"jsonrpc":"2.0","result":{"status":"success","response_text":"` + "0123456789" + `"},"id":"1"}`
	secret  = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

var verifier = agentcoretest.Verifier{Region: region, AccessKey: "AKIDEXAMPLE", Secret: secret, SessionToken: "session-token"}

// both runs f with signatures and with tokens.
func both(t *testing.T, f func(t *testing.T, mode agentcore.AuthMode)) {
	for _, mode := range []agentcore.AuthMode{agentcore.SigV4, agentcore.JWT} {
		t.Run(string(mode), func(t *testing.T) { f(t, mode) })
	}
}

// rig is a platform and a transport to it.
type rig struct {
	*agentcore.Transport
	platform *agentcoretest.Platform
	url      string
}

func start(t *testing.T, mode agentcore.AuthMode, container http.Handler, change func(*agentcoretest.Config, *agentcore.Config)) *rig {
	t.Helper()
	pc := agentcoretest.Config{Verifier: verifier, RuntimeARN: runtime, Container: container}
	tc := agentcore.Config{RuntimeARN: runtime, Auth: mode, Retry: direct.Retry{Base: time.Millisecond, Max: 100 * time.Millisecond}}
	if mode == agentcore.JWT {
		pc.Bearer = func(token string) error {
			if token != "good-token" {
				return errors.New("another token")
			}
			return nil
		}
		tc.Authorize = direct.Bearer(parley.NewSecret([]byte("good-token")))
	} else {
		tc.Credentials = credentials.NewStaticCredentialsProvider(verifier.AccessKey, verifier.Secret, verifier.SessionToken)
	}
	if change != nil {
		change(&pc, &tc)
	}
	p := agentcoretest.New(pc)
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	if tc.Endpoint == "" {
		tc.Endpoint = srv.URL
	}
	tr, err := agentcore.New(t.Context(), tc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return &rig{Transport: tr, platform: p, url: srv.URL}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func fault(t *testing.T, err error) *zone.TransportError {
	t.Helper()
	f, ok := errors.AsType[*zone.TransportError](err)
	if !ok {
		t.Fatalf("no TransportError: %v", err)
	}
	return f
}

func says(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	})
}

// TestZN6_AgentCoreRows has every row of zones.md §1.3: which class, and how often
// the request is sent.
func TestZN6_AgentCoreRows(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		for _, row := range agentcoretest.Rows() {
			t.Run(row.Name, func(t *testing.T) {
				t.Parallel()
				want := row.Attempts
				if mode == agentcore.JWT && strings.Contains(row.Name, "clocks differ") {
					want = 1 // a token does not follow the clock of who sends it
				}
				r := start(t, mode, says(good), nil)
				r.platform.Fail(row.Fault, row.Fault, row.Fault, row.Fault)
				limit := time.Minute
				if row.Fault.How == agentcoretest.KeepsQuiet || row.Fault.How == agentcoretest.StallsHalfway {
					limit = 3 * time.Second
				}
				got, info, err := r.Call(within(t, limit), []byte(`{"id":"1"}`), zone.Meta{})
				// With the date that the row claims, the second signature is really wrong.
				if sent := len(r.platform.Calls()) + len(r.platform.Refused()); sent != want || info.Attempts != want {
					t.Errorf("sent %d times, Info says %d, want %d (%v)", sent, info.Attempts, want, err)
				}
				for _, c := range r.platform.Calls() {
					if c.Session != info.Affinity {
						t.Errorf("a call had the session %s, Info has %s", c.Session, info.Affinity)
					}
				}
				if row.Class == "" {
					if err != nil || string(got) != row.Fault.Body {
						t.Errorf("%q, %v", got, err)
					}
					return
				}
				f := fault(t, err)
				if f.Class != row.Class || f.Info != info {
					t.Errorf("class %s, want %s; %v; info %+v and %+v", f.Class, row.Class, err, f.Info, info)
				}
				if row.Fault.How == agentcoretest.Answers && (info.Status != row.Fault.Status || info.ProviderRequestID == "") {
					t.Errorf("info %+v", info)
				}
				if f.Class == zone.ClassThrottled && strings.Contains(row.Name, "late") && f.RetryAfter != 10*time.Minute {
					t.Errorf("retry after %s", f.RetryAfter)
				}
			})
		}
	})
}

func TestZN6_AgentCoreGoesOnAfterThrottling(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		r := start(t, mode, says(good), nil)
		rows := agentcoretest.Rows()
		r.platform.Fail(rows[0].Fault, agentcoretest.Fault{Status: 409, Type: "RetryableConflictException"})
		got, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if err != nil || string(got) != good || info.Attempts != 3 {
			t.Errorf("%q, %+v, %v", got, info, err)
		}
	})
}

func TestZN6_AgentCoreCarriesBytesAndHeaders(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		body := []byte("{\"a\":\"\\u0000 ä\", \"b\":1.50}\n")
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		var session atomic.Value
		r := start(t, mode, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got, _ := io.ReadAll(r.Body)
			if !bytes.Equal(got, body) || r.Method != http.MethodPost || r.URL.Path != "/invocations" {
				t.Errorf("%s %s %q", r.Method, r.URL, got)
			}
			for name, want := range map[string]string{
				"Content-Type": "application/json", "Accept": "application/json", "Traceparent": trace, "Tracestate": "a=1",
				agentcore.CorrelationHeader: "corr-1", "Authorization": "", "Idempotency-Key": "",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			session.Store(r.Header.Get("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"))
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, good+"\n")
		}), func(p *agentcoretest.Config, c *agentcore.Config) { p.Qualifier, c.Qualifier = "prod-1", "prod-1" })
		meta := zone.Meta{CorrelationID: "corr-1", Trace: parley.Trace{Parent: trace, State: "a=1"}, IdempotencyKey: "key-1"}
		got, info, err := r.Call(within(t, time.Minute), body, meta)
		if err != nil || string(got) != good+"\n" {
			t.Fatalf("%q, %v; refused %v", got, err, r.platform.Refused())
		}
		if info.Affinity != session.Load() || info.Status != 200 || info.ContentType != "application/json" || info.ProviderRequestID == "" || info.Attempts != 1 {
			t.Errorf("%+v", info)
		}
		if r.platform.Calls()[0].Header.Get("Idempotency-Key") != "" {
			t.Error("the platform takes no Idempotency-Key")
		}
		_, again, err := r.Call(within(t, time.Minute), body, meta)
		if err != nil || again.Affinity == info.Affinity {
			t.Errorf("two calls in one session %s, %v", again.Affinity, err)
		}
		meta.Affinity = info.Affinity
		if _, again, err = r.Call(within(t, time.Minute), body, meta); err != nil || again.Affinity != info.Affinity {
			t.Errorf("session %s, want %s, %v", again.Affinity, info.Affinity, err)
		}
	})
}

// TestZN6_AgentCoreSessions: each session is a machine that knows its own tasks
// (zones.md §0 row 3).
func TestZN6_AgentCoreSessions(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		r := start(t, mode, nil, func(p *agentcoretest.Config, _ *agentcore.Config) {
			p.NewVM = func(session string) http.Handler {
				var asked atomic.Int64
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if asked.Add(1) == 1 {
						_, _ = io.WriteString(w, `{"jsonrpc":"2.0","result":"accepted","id":1}`)
						return
					}
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","result":"completed","id":1}`)
				})
			}
		})
		call := func(affinity, want string) string {
			t.Helper()
			got, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{Affinity: affinity})
			if err != nil || !strings.Contains(string(got), want) {
				t.Fatalf("%q, %v, want %s", got, err, want)
			}
			return info.Affinity
		}
		session := call("", "accepted")
		call("", "accepted")
		call(session, "completed")
		if err := r.Release(within(t, time.Minute), session); err != nil {
			t.Fatal(err)
		}
		call(session, "accepted") // a new machine
		if got := r.platform.Stopped(); len(got) != 1 || got[0] != session {
			t.Errorf("stopped %v", got)
		}
		for _, gone := range []string{"", "parley-zone-session-that-never-was-there"} {
			if err := r.Release(within(t, time.Minute), gone); err != nil {
				t.Errorf("%q: %v", gone, err)
			}
		}
		if err := r.Release(within(t, time.Minute), "short"); err == nil {
			t.Error("a malformed session was released")
		}
	})
}

// TestZN6_AgentCoreFoundAgain: who asks for a task and dies before anything comes back
// knows no session, and whoever takes it up reaches the machine that works on it all
// the same: another one would say that there is no such task, and it would be done
// twice.
func TestZN6_AgentCoreFoundAgain(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		begun := make(chan string, 2)
		r := start(t, mode, nil, func(p *agentcoretest.Config, _ *agentcore.Config) {
			p.NewVM = func(session string) http.Handler {
				var known atomic.Bool
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if bytes.Contains(body, []byte("execute_task")) {
						known.Store(true)
						begun <- session
						<-r.Context().Done()
						return
					}
					answer := `"error":{"code":-32000,"message":"no such task","data":{"reason":"unknown_task"}}`
					if known.Load() {
						answer = `"result":{"status":"running"}`
					}
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0",`+answer+`,"id":"look"}`)
				})
			}
		})
		client := zone.NewClient(zone.ClientConfig{Transport: r, NewID: func() string { return "look" }})
		for _, id := range []string{"6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b10", "6f1f9a52-6f0f-4c0e-9b6e-0d1a4f3c2b11"} {
			dying, die := context.WithTimeout(t.Context(), time.Minute)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _, _ = client.Ask(dying, zone.Call{ID: id, Task: zone.Task{Text: "why?"}})
			}()
			session := <-begun
			die()
			<-ended
			res, info, err := client.Fetch(within(t, time.Minute), zone.Query{TaskID: id}, zone.Meta{})
			if err != nil || res.Status != zone.StatusRunning || info.Affinity != session {
				t.Errorf("%+v, %v, asked %s and not %s", res, err, info.Affinity, session)
			}
		}
		if calls := r.platform.Calls(); calls[0].Session == calls[2].Session {
			t.Error("two tasks share a machine")
		}
	})
}

func TestZN6_AgentCoreLimits(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		r := start(t, mode, says(`"`+strings.Repeat("a", 3000)+`"`), func(_ *agentcoretest.Config, c *agentcore.Config) { c.MaxResponse = 2000 })
		_, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassTooLarge || info.Attempts != 1 {
			t.Errorf("response: %v", err)
		}
		_, _, err = r.Call(within(t, time.Minute), make([]byte, zone.MaxPayload+1), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassTooLarge {
			t.Errorf("request: %v", err)
		}
		_, _, err = r.Call(context.Background(), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassNotSent {
			t.Errorf("no deadline: %v", err)
		}
		for _, affinity := range []string{"short", strings.Repeat("a", 101), strings.Repeat("a", 40) + "\r\n", "-" + strings.Repeat("a", 40), strings.Repeat("ä", 40)} {
			_, _, err = r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{Affinity: affinity})
			if f := fault(t, err); f.Class != zone.ClassNotSent {
				t.Errorf("%q: %v", affinity, err)
			}
		}
		if n := len(r.platform.Calls()); n != 1 {
			t.Errorf("%d calls arrived", n)
		}
	})
}

func TestZN6_AgentCoreNotBelieved(t *testing.T) {
	for name, change := range map[string]func(*agentcoretest.Config, *agentcore.Config){
		"secret": func(p *agentcoretest.Config, _ *agentcore.Config) { p.Verifier.Secret += "x" },
		"key":    func(p *agentcoretest.Config, _ *agentcore.Config) { p.Verifier.AccessKey += "X" },
		"token":  func(p *agentcoretest.Config, _ *agentcore.Config) { p.Verifier.SessionToken = "other" },
		"region": func(p *agentcoretest.Config, _ *agentcore.Config) { p.Verifier.Region = "eu-west-1" },
	} {
		r := start(t, agentcore.SigV4, says(good), change)
		_, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassAuth || info.Attempts != 1 || info.Status != 403 {
			t.Errorf("%s: %v, %+v", name, err, info)
		}
	}
	r := start(t, agentcore.JWT, says(good), func(_ *agentcoretest.Config, c *agentcore.Config) {
		c.Authorize = direct.Bearer(parley.NewSecret([]byte("bad-token")))
	})
	_, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
	if f := fault(t, err); f.Class != zone.ClassAuth || info.Attempts != 1 || info.Status != 401 {
		t.Errorf("bearer: %v, %+v", err, info)
	}
}

// TestZN6_AgentCoreClock: a clock that is wrong by hours is found out, and the
// request that nobody believed is signed anew.
func TestZN6_AgentCoreClock(t *testing.T) {
	platformTime := func() time.Time { return time.Now().Add(6 * time.Hour) }
	r := start(t, agentcore.SigV4, nil, func(p *agentcoretest.Config, c *agentcore.Config) {
		p.Verifier.Now, p.Container = platformTime, says(good)
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Date", platformTime().UTC().Format(http.TimeFormat))
		r.platform.ServeHTTP(w, req)
	}))
	defer front.Close()
	tr, err := agentcore.New(t.Context(), agentcore.Config{
		RuntimeARN: runtime, Endpoint: front.URL, Retry: direct.Retry{Base: time.Millisecond},
		Credentials: credentials.NewStaticCredentialsProvider(verifier.AccessKey, verifier.Secret, verifier.SessionToken),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 1} {
		if _, info, err := tr.Call(within(t, time.Minute), []byte("{}"), zone.Meta{}); err != nil || info.Attempts != want {
			t.Errorf("%v, %d attempts, want %d", err, info.Attempts, want)
		}
	}
}

func TestZN6_AgentCoreNotSent(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		r := start(t, mode, says(good), func(_ *agentcoretest.Config, c *agentcore.Config) { c.Endpoint = "http://" + l.Addr().String() })
		_, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassNotSent || info.Attempts != 3 {
			t.Errorf("%v, %+v", err, info)
		}
	})
	r := start(t, agentcore.SigV4, says(good), func(_ *agentcoretest.Config, c *agentcore.Config) {
		c.Credentials = credentials.NewStaticCredentialsProvider("", "", "")
	})
	_, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
	if f := fault(t, err); f.Class != zone.ClassNotSent || info.Attempts != 0 {
		t.Errorf("no credentials: %v, %+v", err, info)
	}
}

func TestZN6_AgentCoreContainerFails(t *testing.T) {
	both(t, func(t *testing.T, mode agentcore.AuthMode) {
		var runs atomic.Int64
		r := start(t, mode, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"error":"xoxb-secret"}`)
		}), nil)
		_, info, err := r.Call(within(t, time.Minute), []byte("{}"), zone.Meta{})
		if f := fault(t, err); f.Class != zone.ClassUnknownOutcome || info.Status != 424 || runs.Load() != 1 || strings.Contains(err.Error(), "xoxb") {
			t.Errorf("%v, %+v, ran %d times", err, info, runs.Load())
		}
	})
}

func TestZN6_AgentCoreTellsOfEndpointsAndQuotas(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(p)
	}), nil))
	p := agentcoretest.New(agentcoretest.Config{Verifier: verifier, RuntimeARN: runtime, Container: says(good)})
	srv := httptest.NewServer(p)
	defer srv.Close()
	t.Setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", srv.URL+"/")
	cfg := agentcore.Config{
		RuntimeARN: runtime, Logger: logger,
		Credentials: credentials.NewStaticCredentialsProvider(verifier.AccessKey, verifier.Secret, verifier.SessionToken),
	}
	tr, err := agentcore.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if host := strings.TrimPrefix(srv.URL, "http://"); !strings.Contains(out.String(), "host="+host) || strings.Contains(out.String(), "http://") {
		t.Errorf("log %q", out.String())
	}
	p.Fail(agentcoretest.Fault{Status: 402, Type: "ServiceQuotaExceededException"})
	_, _, _ = tr.Call(within(t, time.Minute), []byte(`{"bot_token":"xoxb-1"}`), zone.Meta{})
	if _, _, err = tr.Call(within(t, time.Minute), []byte(`{"bot_token":"xoxb-1"}`), zone.Meta{}); err != nil {
		t.Fatal(err)
	}
	log := out.String()
	if !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "quota") {
		t.Errorf("no alert: %q", log)
	}
	for _, s := range []string{"xoxb", secret, "session-token", "Signature="} {
		if strings.Contains(log, s) {
			t.Errorf("the log holds %s", s)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_BEDROCK_AGENTCORE", "http://evil.example.com")
	if _, err := agentcore.New(t.Context(), cfg); err == nil {
		t.Error("the environment could take TLS away")
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestZN6_AgentCoreConfig(t *testing.T) {
	for name, cfg := range map[string]agentcore.Config{
		"no ARN":       {},
		"no runtime":   {RuntimeARN: "arn:aws:bedrock-agentcore:us-west-2:1:runtime/"},
		"other ARN":    {RuntimeARN: "arn:aws:s3:us-west-2:1:runtime/x"},
		"other region": {RuntimeARN: runtime, Region: "eu-west-1"},
		"no region":    {RuntimeARN: "arn:aws:bedrock-agentcore::1:runtime/x"},
		"plain http":   {RuntimeARN: runtime, Endpoint: "http://a.example.com"},
		"no token":     {RuntimeARN: runtime, Auth: agentcore.JWT},
		"other auth":   {RuntimeARN: runtime, Auth: "basic"},
		"huge":         {RuntimeARN: runtime, MaxResponse: zone.MaxPayload + 1},
	} {
		if _, err := agentcore.New(t.Context(), cfg); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
