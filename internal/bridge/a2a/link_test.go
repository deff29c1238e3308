package a2a

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/jsonrpc"
)

// stage is where agents of a test are dialed: streams in memory with an echo at
// their other end.
type stage struct {
	mu    sync.Mutex
	dials []time.Duration // since begun
	begun time.Time
	peers []*jsonrpc.Conn
	err   error
	slow  time.Duration
}

func newStage() *stage { return &stage{begun: time.Now()} }

func (s *stage) dial(ctx context.Context, _ linkTarget) (jsonrpc.Stream, error) {
	s.mu.Lock()
	s.dials = append(s.dials, time.Since(s.begun))
	s.mu.Unlock()
	select { // without the lock: who waits for one holds up the time of the bubble
	case <-time.After(s.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	ours, theirs := jsonrpc.Pipe()
	s.peers = append(s.peers, jsonrpc.NewConn(theirs, jsonrpc.Config{
		Handler: jsonrpc.HandlerFunc(func(ctx context.Context, req *jsonrpc.Request) (any, error) {
			if strings.Contains(string(req.Params()), "hang") {
				<-ctx.Done()
			}
			return req.Method(), nil
		}), Grace: -1, Name: "agent",
	}))
	return ours, nil
}

// hangUp ends the newest connection from the agent's side.
func (s *stage) hangUp() {
	s.mu.Lock()
	peer := s.peers[len(s.peers)-1]
	s.mu.Unlock()
	_ = peer.Close()
	synctest.Wait()
}

func (s *stage) close() {
	for _, p := range s.peers {
		_ = p.Close()
	}
}

// onStage runs a test in a bubble with links to an agent at url.
func onStage(t *testing.T, url string, opts linkOptions, test func(t *testing.T, s *stage, r *linkRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		opts.Stdio, opts.Dial = true, s.dial
		r := newLinkRig(t, url, opts)
		test(t, s, r)
		r.close()
		s.close()
	})
}

// TestLinkBackoff proves the pauses before an agent that ends again and again is
// started anew, what calls are told meanwhile, and that a minute of health
// makes up for former failures.
func TestLinkBackoff(t *testing.T) {
	onStage(t, "stdio:agent", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		var pauses []time.Duration
		for range 8 {
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Fatal(err)
			}
			s.hangUp()
			_, _, err := r.call(t.Context(), verbGet, "echo", "")
			e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
			if !e.Err.Retryable {
				t.Errorf("%v is not retryable", e)
			}
			pauses = append(pauses, e.RetryAfter)
			time.Sleep(e.RetryAfter)
		}
		want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Errorf("pauses (-want +got):\n%s", diff)
		}
		for range 70 { // in use, so that it is not idle
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		s.hangUp()
		_, _, err := r.call(t.Context(), verbGet, "echo", "")
		if e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable); e.RetryAfter != time.Second {
			t.Errorf("pause after a minute of health: %v, want 1s", e.RetryAfter)
		}
	})
}

func TestLinkJitter(t *testing.T) {
	onStage(t, "stdio:agent", linkOptions{Random: func() float64 { return 0.5 }}, func(t *testing.T, s *stage, r *linkRig) {
		s.err = errors.New("no such thing")
		_, _, err := r.call(t.Context(), verbGet, "echo", "")
		if e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable); e.RetryAfter != 750*time.Millisecond {
			t.Errorf("pause %v, want a quarter off 1s", e.RetryAfter)
		}
	})
}

// TestLinkGuarded: a call that had to wait for its agent to be started is not sent
// if its claim may be somebody else's by then (protocol.md §4.3).
func TestLinkGuarded(t *testing.T) {
	for _, url := range []string{"stdio:agent", "ws://agent.example/"} {
		onStage(t, url, linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
			s.slow = 20 * time.Second
			begun := time.Now()
			ctx := bridge.WithSendGuard(t.Context(), func() bool { return time.Since(begun) < 10*time.Second })
			_, _, err := r.call(ctx, verbSend, "echo", "")
			wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Errorf("a question, which has no claim: %v", err)
			}
		})
	}
}

// TestLinkDialsOnce proves that calls that come while an agent is started wait
// for it, share it, and share its failure.
func TestLinkDialsOnce(t *testing.T) {
	for _, broken := range []bool{false, true} {
		onStage(t, "ws://agent.example/", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
			s.slow = 3 * time.Second
			if broken {
				s.err = errors.New("refused")
			}
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, _, err := r.call(t.Context(), verbGet, "echo", "")
					if broken {
						wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _, err := r.call(ctx, verbGet, "echo", "") // gives up before it is there
			wantLinkError(t, err, bridge.NotSent, parley.CodeTimeout)
			wg.Wait()
			if len(s.dials) != 1 {
				t.Errorf("dialed at %v, want once", s.dials)
			}
		})
	}
}

// TestLinkSharedFailure proves that a call that waited for an attempt gets its
// failure also if it learns of it only when the pause is over.
func TestLinkSharedFailure(t *testing.T) {
	onStage(t, "ws://agent.example/", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		s.err = errors.New("refused")
		r.opts.Random = func() float64 { // once the attempt has failed
			s.mu.Lock()
			defer s.mu.Unlock()
			s.err = nil
			return 2 // takes the whole pause off
		}
		_, _, err := r.call(t.Context(), verbGet, "echo", "")
		wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
		if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil || len(s.dials) != 2 {
			t.Errorf("%v, dialed at %v: want another attempt for the next call", err, s.dials)
		}
	})
}

// TestLinkTimes proves what a call is told whose time is up while the agent is
// at work, and that the connection outlives it.
func TestLinkTimes(t *testing.T) {
	onStage(t, "stdio:agent", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		r.agent.Timeout = 7 * time.Second
		begun := time.Now()
		_, _, err := r.call(t.Context(), verbSend, "hang", "")
		e := wantLinkError(t, err, bridge.Lost, parley.CodeTimeout)
		if took := time.Since(begun); took != 7*time.Second || !e.Err.Retryable || !strings.Contains(e.Error(), "no answer within 7s") {
			t.Errorf("after %v: %v: want a retryable timeout", took, e)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = r.call(ctx, verbSend, "hang", "")
		wantLinkError(t, err, bridge.Lost, parley.CodeTimeout)
		_, _, err = r.call(ctx, verbSend, "hang", "")
		wantLinkError(t, err, bridge.NotSent, parley.CodeTimeout)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, _, err = r.call(ctx, verbSend, "hang", "")
		wantLinkError(t, err, bridge.Lost, parley.CodeCancelled)
		if len(s.dials) != 1 {
			t.Errorf("dialed at %v, want once", s.dials)
		}
	})
}

// TestLinkIdle proves that a link that nobody uses ends after five minutes, that
// one in use does not, and that the next call makes a new one without a pause.
func TestLinkIdle(t *testing.T) {
	onStage(t, "stdio:agent", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		call := func() {
			t.Helper()
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Fatal(err)
			}
		}
		up := func() bool {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.all) == 1
		}
		call()
		time.Sleep(linkIdle - time.Second)
		call()
		time.Sleep(linkIdle - time.Second)
		if !up() {
			t.Error("ended while it was used")
		}
		done := make(chan struct{})
		r.agent.Timeout = 8 * time.Minute
		go func() {
			defer close(done)
			_, _, err := r.call(t.Context(), verbGet, "hang", "")
			wantLinkError(t, err, bridge.Lost, parley.CodeTimeout)
		}()
		time.Sleep(7 * time.Minute)
		if !up() {
			t.Error("ended under a call")
		}
		<-done
		time.Sleep(linkIdle + linkIdle) // it looks once in a while
		if up() {
			t.Error("still there after ten minutes")
		}
		call()
		if len(s.dials) != 2 {
			t.Errorf("dialed at %v, want twice", s.dials)
		}
	})
}

// TestLinkProcesses proves the bound on processes, and that sockets do not count.
func TestLinkProcesses(t *testing.T) {
	onStage(t, "stdio:a", linkOptions{Processes: 2}, func(t *testing.T, s *stage, r *linkRig) {
		use := func(url string) error {
			r.to.URL, r.agent.URL = url, url
			_, _, err := r.call(t.Context(), verbGet, "echo", "")
			return err
		}
		for _, url := range []string{"stdio:a", "stdio:b", "ws://c/", "wss://d/", "stdio:a"} {
			if err := use(url); err != nil {
				t.Errorf("%s: %v", url, err)
			}
		}
		e := wantLinkError(t, use("stdio:c"), bridge.NotSent, parley.CodeAgentUnavailable)
		if !e.Err.Retryable || e.RetryAfter == 0 {
			t.Errorf("%v: want a retryable error with a pause", e)
		}
		s.mu.Lock()
		peer := s.peers[0]
		s.mu.Unlock()
		_ = peer.Close()
		synctest.Wait()
		if err := use("stdio:c"); err != nil {
			t.Errorf("after one has ended: %v", err)
		}
	})
}

// TestLinkIdentity proves that nobody gets a connection that somebody else's
// credential opened.
func TestLinkIdentity(t *testing.T) {
	onStage(t, "ws://agent.example/", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		secret := func(v string) parley.Secret { return parley.NewSecret([]byte(v)) }
		call := func(change func(a *parley.Agent)) int {
			t.Helper()
			before := r.agent
			defer func() { r.agent = before }()
			change(&r.agent)
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Fatal(err)
			}
			return len(s.dials)
		}
		same := func(*parley.Agent) {}
		changes := []func(a *parley.Agent){
			same,
			func(a *parley.Agent) { a.Credential = secret("a") },
			func(a *parley.Agent) { a.Credential = secret("b") },
			func(a *parley.Agent) { a.Auth = parley.Auth{Type: parley.AuthBearer, Secret: "env:A"} },
			func(a *parley.Agent) { a.TLS = parley.AgentTLS{CA: "file:ca"} },
			func(a *parley.Agent) {
				a.Resolved = &parley.ResolvedAuth{Headers: map[string]parley.Secret{"A": secret("x")}}
			},
			func(a *parley.Agent) {
				a.Resolved = &parley.ResolvedAuth{Headers: map[string]parley.Secret{"A": secret("y")}}
			},
			func(a *parley.Agent) { a.Resolved = &parley.ResolvedAuth{Cert: secret("x")} },
			func(a *parley.Agent) { a.Resolved = &parley.ResolvedAuth{CA: secret("x")} },
		}
		for i, change := range changes {
			if n := call(change); n != i+1 {
				t.Errorf("change %d: %d connections, want %d", i, n, i+1)
			}
		}
		changes = append(changes, func(a *parley.Agent) { a.Timeout = 20 * time.Second; a.Description = "x" })
		for i, change := range slices.Backward(changes) {
			if n := call(change); n != len(changes)-1 {
				t.Errorf("change %d once more: %d connections", i, n)
			}
		}
	})
}

// TestLinkSocketRedial proves that a WebSocket server that closed the connection
// is dialed again at once, and that one that refuses it is given pauses.
func TestLinkSocketRedial(t *testing.T) {
	onStage(t, "ws://agent.example/", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		for range 3 {
			if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
				t.Fatal(err)
			}
			s.hangUp()
		}
		s.err = errors.New("refused")
		var pauses []time.Duration
		for range 8 {
			_, _, err := r.call(t.Context(), verbGet, "echo", "")
			e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
			pauses = append(pauses, e.RetryAfter)
			time.Sleep(e.RetryAfter)
		}
		if pauses[0] != 100*time.Millisecond || pauses[7] != 5*time.Second {
			t.Errorf("pauses %v, want 100ms to 5s", pauses)
		}
		s.err = nil
		if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
			t.Error(err)
		}
	})
}

// TestLinkClose proves that closing fails what is under way and waits for it
// all; the bubble sees to it that nothing is left.
func TestLinkClose(t *testing.T) {
	onStage(t, "ws://agent.example/", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		s.slow = time.Second
		got := make(chan error, 2)
		for _, do := range []string{"hang", "hang"} {
			go func() {
				_, _, err := r.call(t.Context(), verbSend, do, "")
				got <- err
			}()
			time.Sleep(600 * time.Millisecond)
		}
		time.Sleep(time.Second)
		r.close()
		for range 2 {
			wantLinkError(t, <-got, bridge.Lost, parley.CodeAgentUnavailable)
		}
		_, _, err := r.call(t.Context(), verbSend, "echo", "")
		wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
	})
	onStage(t, "ws://agent.example/", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		s.slow = time.Hour
		got := make(chan error, 1)
		go func() {
			_, _, err := r.call(t.Context(), verbSend, "echo", "")
			got <- err
		}()
		synctest.Wait()
		r.close()
		wantLinkError(t, <-got, bridge.NotSent, parley.CodeAgentUnavailable)
	})
}

func TestLinkMany(t *testing.T) {
	onStage(t, "", linkOptions{}, func(t *testing.T, s *stage, r *linkRig) {
		s.err = errors.New("refused")
		for i := range maxLinks {
			r.to.URL = "ws://" + strings.Repeat("a", i+1)
			_, _, err := r.call(t.Context(), verbGet, "echo", "")
			wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
		}
		r.to.URL = "ws://new"
		_, _, err := r.call(t.Context(), verbGet, "echo", "")
		if e := wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable); !strings.Contains(e.Error(), "1024 agents") {
			t.Errorf("%v: want the bound", e)
		}
		time.Sleep(time.Second) // the failures are over
		s.err = nil
		if _, _, err := r.call(t.Context(), verbGet, "echo", ""); err != nil {
			t.Error(err)
		}
	})
}

func TestLinkPlace(t *testing.T) {
	for url, want := range map[string]string{
		"stdio:python agent.py --key s3cret":    "the process python",
		"stdio:'/opt/my agents/run' s3cret":     "the process run",
		`stdio:"/usr/bin/node" a.js`:            "the process node",
		"wss://agent.example:9/rpc?key=s3cret":  "wss://agent.example:9/rpc",
		"ws://ann:s3cret@agent.example/a%2Fb#x": "ws://agent.example/a%2Fb",
		"ws://a b/":                             "the WebSocket",
	} {
		if got := linkPlace(url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	for url, want := range map[string]bool{
		"stdio:x": true, "STDIO:x": true, "ws://x/": true, "WSS://x": true, "http://x": false, "stdio+lsp:x": false, "x:1": false, "": false,
	} {
		if streamless(url) != want {
			t.Errorf("streamless(%q) = %v", url, !want)
		}
	}
}
