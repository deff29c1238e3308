package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/direct"
	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zoneauth"
)

const (
	zoneCallers = 64
	zoneRate    = 1_000 // calls/s of the paced rounds
	zoneBar     = 5_000 // calls/s
	zoneBeyond  = 1.0   // ms at the 99th percentile
	zoneAllocs  = 2_000 // calls over which allocations are counted
)

// zoneBench measures execute_task from a Verification Zone's client to an Execution
// Zone's handler and back, over HTTPS on loopback, without any work and any write.
// The floor is the same POST from net/http to a handler that echoes. Both ends of
// both run in this process.
func zoneBench(ctx context.Context, o options) ([]row, error) {
	rounds, full, paced := 5, 4*time.Second, 6*time.Second
	if o.quick {
		rounds, full, paced = 3, time.Second, 2*time.Second
	}
	var rows []row
	for _, proto := range []string{"HTTP/2", "HTTP/1.1"} {
		b, err := newZoneBench(ctx, proto == "HTTP/2")
		if err != nil {
			return nil, err
		}
		f, err := b.rounds(ctx, rounds, full, paced)
		var found []row
		if err == nil {
			found, err = b.rows(ctx, proto, f)
		}
		b.close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", proto, err)
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// zoneCall is one exchange, the n-th.
type zoneCall func(ctx context.Context, n int64) error

// zonePair is the product, or the floor: its server and a call to it.
type zonePair struct {
	server *httptest.Server
	call   zoneCall
	close  func()
}

// zonesBench holds both.
type zonesBench struct {
	zone, floor zonePair
	serial      atomic.Int64
}

func newZoneBench(ctx context.Context, h2 bool) (b *zonesBench, err error) {
	b = &zonesBench{}
	if b.zone, err = newZonePair(h2); err != nil {
		return nil, err
	}
	b.floor = newEchoPair(h2)
	for _, p := range []zonePair{b.zone, b.floor} {
		if _, _, err := b.drive(ctx, p.call, 0, 500*time.Millisecond); err != nil { // connections, and everything that is made once
			b.close()
			return nil, err
		}
	}
	return b, nil
}

func (b *zonesBench) close() {
	for _, p := range []zonePair{b.zone, b.floor} {
		p.close()
		p.server.Close()
	}
}

// zoneFigures are those of all rounds, by side.
type zoneFigures struct{ rate, p50, p99 [2][]float64 }

// rounds measures both sides in turn.
func (b *zonesBench) rounds(ctx context.Context, n int, full, paced time.Duration) (f zoneFigures, err error) {
	for range n {
		for side, p := range []zonePair{b.zone, b.floor} {
			runtime.GC() // what the other side has left behind
			took, elapsed, err := b.drive(ctx, p.call, 0, full)
			if err != nil {
				return f, err
			}
			f.rate[side] = append(f.rate[side], float64(len(took))/elapsed.Seconds())
		}
		for side, p := range []zonePair{b.zone, b.floor} {
			runtime.GC()
			took, _, err := b.drive(ctx, p.call, zoneRate, paced)
			if err != nil {
				return f, err
			}
			f.p50[side] = append(f.p50[side], ms(percentile(took, 0.5)))
			f.p99[side] = append(f.p99[side], ms(percentile(took, 0.99)))
		}
	}
	return f, nil
}

// rows makes those of one version of HTTP.
func (b *zonesBench) rows(ctx context.Context, proto string, f zoneFigures) ([]row, error) {
	var allocs [2]float64
	for side, p := range []zonePair{b.zone, b.floor} {
		n, err := b.allocations(ctx, p.call)
		if err != nil {
			return nil, err
		}
		allocs[side] = n
	}
	crowd, pace := fmt.Sprintf("execute_task, %s, %d callers", proto, zoneCallers), fmt.Sprintf("execute_task, %s, %d calls/s", proto, zoneRate)
	rate := compare(row{Case: crowd, Metric: "throughput", Unit: "calls/s", Bar: fmt.Sprintf("≥ %d calls/s", zoneBar)}, f.rate[0], f.rate[1])
	rate.Holds = rate.Value >= zoneBar
	p99 := compare(row{Case: pace, Metric: "latency p99", Unit: "ms", Bar: fmt.Sprintf("≤ %g ms more than floor", zoneBeyond)}, f.p99[0], f.p99[1])
	p99.Holds = p99.Value-p99.Floor <= zoneBeyond
	p50 := compare(row{Case: pace, Metric: "latency p50", Unit: "ms"}, f.p50[0], f.p50[1])
	both := compare(row{Case: "execute_task, " + proto + ", both ends", Metric: "allocations", Unit: "allocs"}, allocs[:1], allocs[1:])
	for _, r := range []*row{&p50, &both} {
		r.Holds = true
	}
	return []row{rate, p99, p50, both}, nil
}

// drive has all callers call for a time, rate times a second in all; 0 is as often
// as it goes. It gives how long each call took.
func (b *zonesBench) drive(ctx context.Context, call zoneCall, rate int, length time.Duration) ([]time.Duration, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	took, failed := make([][]time.Duration, zoneCallers), make([]error, zoneCallers)
	var all sync.WaitGroup
	began := time.Now()
	for i := range zoneCallers {
		all.Go(func() {
			for n := 0; ; n++ {
				if rate > 0 { // the callers take turns
					time.Sleep(time.Until(began.Add(time.Duration(n*zoneCallers+i) * time.Second / time.Duration(rate))))
				}
				sent := time.Now()
				if sent.Sub(began) >= length {
					return
				}
				if failed[i] = call(ctx, b.serial.Add(1)); failed[i] != nil {
					return
				}
				took[i] = append(took[i], time.Since(sent))
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began)
	if err := errors.Join(failed...); err != nil {
		return nil, 0, err
	}
	if sum := slices.Concat(took...); len(sum) > 0 {
		return sum, elapsed, nil
	}
	return nil, 0, errors.New("nothing was measured")
}

// allocations counts those of one call, of the caller and of the server.
func (b *zonesBench) allocations(ctx context.Context, call zoneCall) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range zoneAllocs {
		if err := call(ctx, b.serial.Add(1)); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / zoneAllocs), nil
}

// zoneAnswer is what every task gives.
const zoneAnswer = "an answer of a few words, as most are"

// instantWork has the answer to every task at once, and writes nothing.
type instantWork struct{}

// Start implements execution.Work.
func (instantWork) Start(context.Context, string, execution.Input) error { return nil }

// Await implements execution.Work.
func (instantWork) Await(context.Context, string) (execution.Outcome, error) {
	return execution.Outcome{State: execution.Completed, Output: json.RawMessage(`"` + zoneAnswer + `"`)}, nil
}

// Look implements execution.Work.
func (w instantWork) Look(ctx context.Context, key string) (execution.Outcome, error) {
	return w.Await(ctx, key)
}

// Running implements execution.Work.
func (instantWork) Running() int { return 0 }

// unread takes the lines of a log, so that they are made as everywhere.
type unread struct{}

// Write implements io.Writer.
func (unread) Write(p []byte) (int, error) { return len(p), nil }

// zoneID gives the n-th UUID.
func zoneID(n int64) string { return fmt.Sprintf("6f1f9a52-6f0f-4c0e-9b6e-%012x", n) }

// zoneTask is what is asked.
func zoneTask(n int64) zone.Task {
	return zone.Task{
		Channel: "C0123456789", Text: "what did the customer of the third order write last week?", CorrelationID: zoneID(n),
		ThreadTS: "1763800000.000100", TeamID: "T0123456789", UserID: "U0123456789",
	}
}

// newZonePair is both zones with a token between them.
func newZonePair(h2 bool) (zonePair, error) {
	token := parley.NewSecret([]byte("the token between the zones of the benchmark"))
	check, err := zoneauth.Bearer(token)
	if err != nil {
		return zonePair{}, err
	}
	var serial atomic.Int64
	newID := func() string { return zoneID(serial.Add(1)) }
	serving := execution.New(execution.Config{
		Work: instantWork{}, Profile: zone.ProfileRelaxed, NewID: newID, Now: time.Now, Authorize: check,
		Logger: slog.New(slog.NewJSONHandler(unread{}, nil)),
	})
	server := overTLS(serving.Handler(), h2)
	transport, err := direct.New(direct.Config{URL: server.URL + "/invocations", TLS: trusting(server), Authorize: direct.Bearer(token)})
	if err != nil {
		server.Close()
		return zonePair{}, err
	}
	client := zone.NewClient(zone.ClientConfig{Transport: transport, Profile: zone.ProfileRelaxed, NewID: newID})
	return zonePair{server: server, close: transport.Close, call: func(ctx context.Context, n int64) error {
		result, _, err := client.Ask(ctx, zone.Call{ID: zoneID(n), Task: zoneTask(n)})
		if err == nil && result.ResponseText != zoneAnswer {
			err = fmt.Errorf("a wrong answer: %q", result.ResponseText)
		}
		return err
	}}, nil
}

// newEchoPair is net/http and nothing else: a request that is ready, and a server
// that sends it back.
func newEchoPair(h2 bool) zonePair {
	server := overTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}), h2)
	body := `{"jsonrpc":"2.0","method":"execute_task","params":{"channel":"C0123456789","text":"what did the customer of the third order write last week?",` +
		`"correlation_id":"` + zoneID(0) + `","thread_ts":"1763800000.000100","team_id":"T0123456789","user_id":"U0123456789"},"id":"` + zoneID(0) + `"}`
	transport := &http.Transport{TLSClientConfig: trusting(server), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: zoneCallers}
	client := &http.Client{Transport: transport}
	return zonePair{server: server, close: transport.CloseIdleConnections, call: func(ctx context.Context, _ int64) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/invocations", bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		back, err := io.ReadAll(resp.Body)
		if err == nil && len(back) != len(body) {
			err = fmt.Errorf("%d bytes came back", len(back))
		}
		return err
	}}
}

// overTLS serves a handler on loopback.
func overTLS(h http.Handler, h2 bool) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = h2
	server.StartTLS()
	return server
}

// trusting is the TLS configuration of who trusts a server of ours.
func trusting(server *httptest.Server) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
}
