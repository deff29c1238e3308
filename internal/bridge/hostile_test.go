package bridge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// TestExchangeAskDiscreet: an agent that tells in a header what it was asked
// with gets it into nothing that is stored or shown.
func TestExchangeAskDiscreet(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told := r.Header.Get("Authorization")
		w.Header().Set("ETag", `"`+told+`"`)
		w.Header()["Www-Authenticate"] = []string{"Basic", told}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, told)
	}))
	defer s.Close()
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	defer x.Close()
	agent := parley.Agent{
		Name: "a", URL: s.URL, Auth: parley.Auth{Type: parley.AuthBearer}, Credential: parley.NewSecret([]byte("c4nary-c4nary")),
	}
	reply, err := x.Ask(t.Context(), agent, bridge.Inquiry{URL: s.URL})
	if err != nil || reply.Header.Get("ETag") != `"Bearer [redacted]"` || strings.Contains(fmt.Sprint(reply.Header, string(reply.Body)), "c4nary") {
		t.Errorf("%v %s, %v", reply.Header, reply.Body, err)
	}
}

// TestExchangeAskLimit: of an answer that is too large no more is read than
// would be of use.
func TestExchangeAskLimit(t *testing.T) {
	t.Parallel()
	sent := make(chan int, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		for piece := make([]byte, 64<<10); ; n += len(piece) {
			if _, err := w.Write(piece); err != nil || n > 64<<20 {
				break
			}
		}
		sent <- n
	}))
	defer s.Close()
	x := bridge.NewExchange(bridge.ExchangeConfig{
		Egress: bridge.Egress{Loopback: true}, Limits: bridge.ExchangeLimits{MaxResponse: 1 << 30},
	})
	defer x.Close()
	_, err := x.Ask(t.Context(), parley.Agent{Name: "a", URL: s.URL}, bridge.Inquiry{URL: s.URL + "/card"})
	if parley.CodeOf(err) != parley.CodeLimit || !strings.Contains(err.Error(), "/card: the body of the response is larger than 65536 bytes") {
		t.Error(err)
	}
	if n := <-sent; n > 32<<20 { // what the system holds in between
		t.Errorf("%d bytes were taken", n)
	}
}

// TestProgressFlood: what an agent tells in many small pieces is bounded as
// what it tells in large ones.
func TestProgressFlood(t *testing.T) {
	inBubble(t, func(r *rig) {
		seen := r.progressOf()
		const flood = 100_000
		r.agent.call = func(_ context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
			for range flood {
				p(bridge.Report{Chunk: &bridge.Chunk{}})
			}
			return answered(task, "1"), nil
		}
		p := r.staff("b", newDesk(), nil)
		r.want(r.task("one", 1, nil), parley.OutcomeOK, "")
		synctest.Wait()
		got := seen()
		if len(got) != 2 || len(got[1]["chunks"].([]any)) > 1024 {
			t.Errorf("%d records, the second has %d chunks", len(got), len(got[1]["chunks"].([]any)))
		}
		p.stop()
	})
}

// TestProgressRate: of an agent that tells where it stands and what it has, both all
// the time, no second of a run keeps more than four records, but for the rest at
// the end.
func TestProgressRate(t *testing.T) {
	inBubble(t, func(r *rig) {
		seen := r.progressOf()
		r.agent.call = func(_ context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
			for n := range 1000 {
				p(bridge.Report{State: "working", Text: "page"})
				if n%3 == 0 {
					p(bridge.Report{Chunk: &bridge.Chunk{Artifact: "a", Text: "x", Append: true}})
				}
				time.Sleep(7 * time.Millisecond)
				if n%100 == 99 { // late timers and fast callers must not add up
					time.Sleep(300 * time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			return answered(task, "1"), nil
		}
		p := r.staff("b", newDesk(), nil)
		r.want(r.task("one", 1, nil), parley.OutcomeOK, "")
		synctest.Wait()
		var at []time.Time
		for _, record := range seen() {
			when, err := time.Parse(time.RFC3339Nano, record["at"].(string))
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, when)
		}
		for i := 4; i < len(at); i++ {
			if d := at[i].Sub(at[i-4]); d < time.Second {
				t.Fatalf("5 records within %s", d)
			}
		}
		if len(at) < 30 {
			t.Errorf("%d records in 10 s", len(at))
		}
		p.stop()
	})
}

// TestProgressState: a run shows a word, and not what an adapter puts behind it.
func TestProgressState(t *testing.T) {
	inBubble(t, func(r *rig) {
		seen := r.progressOf()
		r.agent.call = func(_ context.Context, task parley.Task, _ int, p bridge.Progress) (bridge.Outcome, error) {
			p(bridge.Report{State: "working 2026-11-21T10:00:00Z, 3 artifacts"})
			return answered(task, "1"), nil
		}
		p := r.staff("b", newDesk(), nil)
		r.want(r.task("one", 1, nil), parley.OutcomeOK, "")
		synctest.Wait()
		if got := seen(); len(got) != 1 || got[0]["state"] != "working" {
			t.Errorf("%v", got)
		}
		p.stop()
	})
}
