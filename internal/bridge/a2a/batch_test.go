package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// posts is a binding that remembers what it carries, and answers by a script.
type posts struct {
	rpcForm
	mu     sync.Mutex
	bodies []string
	// answer gives what comes back; ids are those of the requests.
	answer func(ctx context.Context, ids []string, isBatch bool) (bridge.Reply, error)
}

func (p *posts) carry(ctx context.Context, _ operation, body []byte) (bridge.Reply, error) {
	p.mu.Lock()
	p.bodies = append(p.bodies, string(body))
	p.mu.Unlock()
	var many []struct {
		ID string `json:"id"`
	}
	isBatch := body[0] == '['
	if !isBatch {
		body = []byte("[" + string(body) + "]")
	}
	if err := json.Unmarshal(body, &many); err != nil {
		return bridge.Reply{}, err
	}
	var ids []string
	for _, one := range many {
		ids = append(ids, one.ID)
	}
	return p.answer(ctx, ids, isBatch)
}

func (p *posts) stream(context.Context, operation, []byte) (eventSource, bridge.Reply, error) {
	return nil, bridge.Reply{}, nil
}

// sizes gives how many requests each exchange had.
func (p *posts) sizes() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n []int
	for _, b := range p.bodies {
		n = append(n, strings.Count(b, `"jsonrpc"`))
	}
	return n
}

func ok200(body string) (bridge.Reply, error) {
	return bridge.Reply{Status: http.StatusOK, Body: []byte(body)}, nil
}

func resultOf(id string) string {
	return `{"jsonrpc":"2.0","id":"` + id + `","result":"of ` + id + `"}`
}

// inOrder answers every request, in the order that arrange makes of them.
func inOrder(arrange func(ids []string)) func(context.Context, []string, bool) (bridge.Reply, error) {
	return func(_ context.Context, ids []string, isBatch bool) (bridge.Reply, error) {
		if !isBatch {
			return ok200(resultOf(ids[0]))
		}
		arrange(ids)
		var all []string
		for _, id := range ids {
			all = append(all, resultOf(id))
		}
		return ok200("[" + strings.Join(all, " ,\n") + "]")
	}
}

// batchRig is a batched binding within a bubble.
type batchRig struct {
	*batched
	posts *posts
	max   int
}

func onBatch(t *testing.T, test func(t *testing.T, r *batchRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &batchRig{posts: &posts{answer: inOrder(func([]string) {})}, max: 100}
		r.batched = newBatched(r.posts, time.Now)
		test(t, r)
		r.close()
	})
}

func (r *batchRig) op(vb verb, id string) operation {
	return operation{
		verb: vb, to: Endpoint{URL: "https://agent.example/", Version: V10, Batch: r.max}, id: id, params: []byte("{}"),
		task: parley.Task{ID: id, Step: "ask", Attempt: 1}, agent: parley.Agent{ID: "a1", Name: "local"},
	}
}

// call makes one call; the result is that of open.
func (r *batchRig) call(ctx context.Context, op operation) (string, *failure, error) {
	body, err := r.encode(op)
	if err != nil {
		return "", nil, err
	}
	reply, err := r.carry(ctx, op, body)
	if err != nil {
		return "", nil, err
	}
	result, f, err := r.open(op, reply.Body)
	return string(result), f, err
}

// each calls with n ids at once and gives every outcome to check.
func (r *batchRig) each(t *testing.T, vb verb, n int, check func(id, result string, f *failure, err error)) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprintf("run-1.ask.%d", i)
			result, f, err := r.call(t.Context(), r.op(vb, id))
			check(id, result, f, err)
		})
	}
	wg.Wait()
}

func TestBatchOrders(t *testing.T) {
	orders := map[string]func(ids []string){
		"as sent":  func([]string) {},
		"reversed": slices.Reverse[[]string],
		"rotated":  func(ids []string) { slices.Reverse(ids[:1]); slices.Reverse(ids[1:]); slices.Reverse(ids) },
		"sorted":   slices.Sort[[]string],
	}
	for name, order := range orders {
		onBatch(t, func(t *testing.T, r *batchRig) {
			r.posts.answer = inOrder(order)
			r.each(t, verbGet, 7, func(id, result string, f *failure, err error) {
				if result != `"of `+id+`"` || f != nil || err != nil {
					t.Errorf("%s: %s got %s, %v, %v", name, id, result, f, err)
				}
			})
			if got := r.posts.sizes(); !slices.Equal(got, []int{7}) {
				t.Errorf("%s: exchanges of %v requests, want one of 7", name, got)
			}
		})
	}
}

// TestBatchGuarded: what takes time before a batch is sent asks the guards of all its
// calls, and so does each call that goes alone (protocol.md §4.3). A call that may not be
// sent any more is left out, and keeps none of the others back.
func TestBatchGuarded(t *testing.T) {
	for _, n := range []int{1, 3} {
		onBatch(t, func(t *testing.T, r *batchRig) {
			asked := map[string]int{}
			answer := r.posts.answer
			r.posts.answer = func(ctx context.Context, ids []string, isBatch bool) (bridge.Reply, error) {
				if err := bridge.Guarded(ctx, parley.Task{}, parley.Agent{}); err != nil { // as after an access token was fetched
					return bridge.Reply{}, err
				}
				return answer(ctx, ids, isBatch)
			}
			var wg sync.WaitGroup
			for i := range n {
				id := fmt.Sprint("t", i)
				ctx := bridge.WithSendGuard(t.Context(), func() bool { asked[id]++; return i > 0 })
				wg.Go(func() {
					got, _, err := r.call(ctx, r.op(verbSend, id))
					e, ok := errors.AsType[*bridge.ExchangeError](err)
					if withheld := ok && e.Disposition == bridge.NotSent && e.Withheld; withheld != (i == 0) || i > 0 && got != `"of `+id+`"` {
						t.Errorf("%d calls: %s got %s, %v", n, id, got, err)
					}
				})
			}
			wg.Wait()
			if len(asked) != n {
				t.Errorf("%d calls: asked the guards of %v", n, asked)
			}
			if got, want := r.posts.sizes(), map[int][]int{1: {1}, 3: {3, 2}}[n]; !slices.Equal(got, want) {
				t.Errorf("%d calls: exchanges of %v requests, want %v", n, got, want)
			}
		})
	}
}

// TestBatchAnswerTooLarge: tasks whose answers are too large together are asked for
// one by one; messages are not sent a second time.
func TestBatchAnswerTooLarge(t *testing.T) {
	for vb, want := range map[verb][]int{verbGet: {1, 1, 1, 3}, verbSend: {3}} {
		onBatch(t, func(t *testing.T, r *batchRig) {
			alone := r.posts.answer
			r.posts.answer = func(ctx context.Context, ids []string, isBatch bool) (bridge.Reply, error) {
				if isBatch {
					e := parley.Errorf(parley.CodeLimit, "the body of the response is larger than 3 bytes (max_response)")
					return bridge.Reply{Status: http.StatusOK}, &bridge.ExchangeError{Disposition: bridge.Lost, Err: e}
				}
				return alone(ctx, ids, false)
			}
			r.each(t, vb, 3, func(id, result string, f *failure, err error) {
				if read := err == nil && result == `"of `+id+`"`; read != (vb == verbGet) {
					t.Errorf("%s: %s got %s, %v, %v", vb, id, result, f, err)
				}
			})
			if got := slices.Sorted(slices.Values(r.posts.sizes())); !slices.Equal(got, want) {
				t.Errorf("%s: exchanges of %v requests, want %v", vb, got, want)
			}
		})
	}
}

// TestBatchSizes proves what goes together: at most as many as the agent
// declares, of one kind, of one agent and credential, and not too much text.
func TestBatchSizes(t *testing.T) {
	run := func(name string, want []int, ops func(r *batchRig) []operation) {
		onBatch(t, func(t *testing.T, r *batchRig) {
			var wg sync.WaitGroup
			for _, op := range ops(r) {
				wg.Go(func() {
					if got, _, err := r.call(t.Context(), op); got != `"of `+op.id+`"` {
						t.Errorf("%s: %s got %s, %v", name, op.id, got, err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			if got := slices.Sorted(slices.Values(r.posts.sizes())); !slices.Equal(got, want) {
				t.Errorf("%s: exchanges of %v requests, want %v", name, got, want)
			}
		})
	}
	many := func(n int, change func(i int, op *operation)) func(*batchRig) []operation {
		return func(r *batchRig) (ops []operation) {
			for i := range n {
				op := r.op(verbGet, fmt.Sprint("t", i))
				change(i, &op)
				ops = append(ops, op)
			}
			return ops
		}
	}
	run("alone", []int{1}, many(1, func(int, *operation) {}))
	run("more than one batch", []int{1, 3, 3}, many(7, func(_ int, op *operation) { op.to.Batch = 3 }))
	run("no batches", []int{1, 1, 1}, many(3, func(_ int, op *operation) { op.to.Batch = 0 }))
	run("batches of one", []int{1, 1, 1}, many(3, func(_ int, op *operation) { op.to.Batch = 1 }))
	run("kinds", []int{1, 1, 2, 2}, many(6, func(i int, op *operation) {
		op.verb = []verb{verbGet, verbSend, verbCancel, verbGet, verbSend, verbList}[i]
	}))
	run("kinds that are never batched", []int{1, 1, 1, 1}, many(4, func(i int, op *operation) {
		op.verb = []verb{verbCancel, verbCancel, verbList, verbList}[i]
	}))
	run("agents", []int{2, 2}, many(4, func(i int, op *operation) { op.agent.ID = fmt.Sprint(i % 2) }))
	run("places", []int{2, 2}, many(4, func(i int, op *operation) { op.to.URL += fmt.Sprint(i % 2) }))
	run("dialects", []int{2, 2}, many(4, func(i int, op *operation) { op.to.Version = []Version{V03, V10}[i%2] }))
	run("credentials", []int{2, 2}, many(4, func(i int, op *operation) {
		op.agent.Credential = parley.NewSecret([]byte{byte('a' + i%2)})
	}))
	run("equal ids", []int{1, 1}, many(2, func(_ int, op *operation) { op.id = "same" }))
	run("text", []int{1, 1, 2}, many(4, func(i int, op *operation) {
		op.params = []byte(`{"a":"` + strings.Repeat("x", []int{30_000, 30_000, 30_000, 40_000}[i]) + `"}`)
	}))
}

func TestBatchWindow(t *testing.T) {
	onBatch(t, func(t *testing.T, r *batchRig) {
		begun := time.Now()
		r.each(t, verbSend, 2, func(_, _ string, _ *failure, _ error) {})
		if took := time.Since(begun); took > 2*time.Millisecond {
			t.Errorf("two requests took %v, of which none is the agent's", took)
		}
		r.max = 2
		begun = time.Now()
		r.each(t, verbSend, 2, func(_, _ string, _ *failure, _ error) {})
		if took := time.Since(begun); took != 0 {
			t.Errorf("a full batch waited for %v", took)
		}
	})
}

// TestBatchAnswers proves what each request gets of an answer that is not simply
// one for each.
func TestBatchAnswers(t *testing.T) {
	const a, b, c = "run-1.ask.0", "run-1.ask.1", "run-1.ask.2"
	e := func(id, code string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":` + code + `,"message":"no"}}`
	}
	for _, tc := range []struct {
		name, body string
		want       []string // for a, b, c
	}{
		{"one is missing", "[" + resultOf(c) + "," + resultOf(a) + "]", []string{"of a", "lost", "of c"}},
		{"nothing", "[]", []string{"lost", "lost", "lost"}},
		{"an error among them", "[" + resultOf(c) + "," + e(`"`+b+`"`, "-32001") + "," + resultOf(a) + "]", []string{"of a", "-32001", "of c"}},
		{"an error without an id", "[" + resultOf(c) + "," + e("null", "-32600") + "," + resultOf(a) + "]", []string{"of a", "-32600", "of c"}},
		{"two of them", "[" + resultOf(c) + "," + e("null", "-32600") + "," + e("null", "-32600") + "]", []string{"lost", "lost", "of c"}},
		{"strangers", "[" + resultOf("x") + ",1,[],null," + resultOf(a) + "," + resultOf(b) + "," + resultOf(c) + "]", []string{"of a", "of b", "of c"}},
		{"twice", "[" + resultOf(a) + "," + e(`"`+a+`"`, "-32603") + "," + resultOf(b) + "," + resultOf(c) + "]", []string{"of a", "of b", "of c"}},
		{"ids that are numbers", `[{"jsonrpc":"2.0","id":1,"result":1}]`, []string{"lost", "lost", "lost"}},
		{"one error for all", e("null", "-32603"), []string{"-32603", "-32603", "-32603"}},
		{"the answer to one", resultOf(b), []string{"lost", "of b", "lost"}},
		{"HTML", "<html>", []string{"defect", "defect", "defect"}},
		{"half of it", "[" + resultOf(a), []string{"defect", "defect", "defect"}},
	} {
		onBatch(t, func(t *testing.T, r *batchRig) {
			r.posts.answer = func(context.Context, []string, bool) (bridge.Reply, error) { return ok200(tc.body) }
			var mu sync.Mutex
			got := map[string]string{}
			r.each(t, verbGet, 3, func(id, result string, f *failure, err error) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case f != nil:
					got[id] = fmt.Sprint(f.code)
				case err == nil:
					got[id] = strings.Trim(result, `"`)
				default:
					got[id] = "defect"
					if _, is := err.(*bridge.ExchangeError); is {
						wantLinkError(t, err, bridge.Lost, parley.CodeAgentError)
						got[id] = "lost"
					}
				}
			})
			for i, id := range []string{a, b, c} {
				want := strings.NewReplacer("of a", "of "+a, "of b", "of "+b, "of c", "of "+c).Replace(tc.want[i])
				if got[id] != want {
					t.Errorf("%s: %s got %q, want %q", tc.name, id, got[id], want)
				}
			}
			if n := r.posts.sizes(); !slices.Equal(n, []int{3}) {
				t.Errorf("%s: exchanges of %v requests, want one: nothing is sent twice", tc.name, n)
			}
		})
	}
}

// TestBatchRefused proves that an agent that refuses an array gets its requests
// one by one, and no array for a while.
func TestBatchRefused(t *testing.T) {
	refused := func(status int, code string) (bridge.Reply, error) {
		reply, err := ok200(`{"jsonrpc":"2.0","id":null,"error":{"code":` + code + `,"message":"no batches"}}`)
		if status != http.StatusOK {
			reply.Status = status
			err = &bridge.ExchangeError{Disposition: bridge.Answered, Status: status, Err: parley.Errorf(parley.CodeAgentRejected, "HTTP %d", status)}
		}
		return reply, err
	}
	for _, tc := range []struct {
		name   string
		status int
		code   string
		lasts  bool
	}{
		{"by the specification", 200, "-32600", true},
		{"as two SDKs do", 200, "-32602", true},
		{"as what it cannot parse", 400, "-32700", true},
		{"as too large", 413, "-32603", false},
	} {
		onBatch(t, func(t *testing.T, r *batchRig) {
			alone := r.posts.answer
			r.posts.answer = func(ctx context.Context, ids []string, isBatch bool) (bridge.Reply, error) {
				if isBatch {
					return refused(tc.status, tc.code)
				}
				return alone(ctx, ids, false)
			}
			round := func(want ...int) {
				t.Helper()
				r.posts.bodies = nil
				r.each(t, verbSend, 3, func(id, result string, f *failure, err error) {
					if result != `"of `+id+`"` {
						t.Errorf("%s: %s got %s, %v, %v", tc.name, id, result, f, err)
					}
				})
				if got := slices.Sorted(slices.Values(r.posts.sizes())); !slices.Equal(got, want) {
					t.Errorf("%s: exchanges of %v requests, want %v", tc.name, got, want)
				}
			}
			round(1, 1, 1, 3)
			if tc.lasts {
				round(1, 1, 1)
				time.Sleep(alonePeriod)
			}
			round(1, 1, 1, 3)
		})
	}
}

// TestBatchFails proves that what becomes of the exchange becomes of all
// requests, each with its own name on it.
func TestBatchFails(t *testing.T) {
	for _, d := range []bridge.Disposition{bridge.NotSent, bridge.Lost} {
		onBatch(t, func(t *testing.T, r *batchRig) {
			r.posts.answer = func(context.Context, []string, bool) (bridge.Reply, error) {
				e := parley.Errorf(parley.CodeAgentUnavailable, "broken")
				e.Step = "another"
				return bridge.Reply{}, &bridge.ExchangeError{Disposition: d, Err: e, RetryAfter: time.Second}
			}
			r.each(t, verbSend, 3, func(_, _ string, _ *failure, err error) {
				if e := wantLinkError(t, err, d, parley.CodeAgentUnavailable); e.RetryAfter != time.Second {
					t.Errorf("%v: the agent's wish is gone", e)
				}
			})
			if got := r.posts.sizes(); !slices.Equal(got, []int{3}) {
				t.Errorf("exchanges of %v requests, want one: nothing is sent twice", got)
			}
		})
	}
}

// TestBatchDiscreet: an agent that repeats what it was sent, where one answer is for
// all, tells no call the secret of another.
func TestBatchDiscreet(t *testing.T) {
	echoed := func(ids []string) string {
		return `{"detail":["secret-of-` + strings.Join(ids, `","secret-of-`) + `"]}`
	}
	answers := map[string]func(context.Context, []string, bool) (bridge.Reply, error){
		"a status": func(_ context.Context, ids []string, _ bool) (bridge.Reply, error) {
			text := echoed(ids)
			e := parley.Errorf(parley.CodeAgentRejected, "HTTP 422: %s", text).WithDetails(json.RawMessage(text))
			return bridge.Reply{Status: 422, Body: []byte(text)}, &bridge.ExchangeError{
				Disposition: bridge.Answered, Err: e, Status: 422, Body: []byte(text),
			}
		},
		"an error": func(_ context.Context, ids []string, _ bool) (bridge.Reply, error) {
			return ok200(`{"jsonrpc":"2.0","id":null,"error":{"code":-32050,"message":"no","data":` + echoed(ids) + `}}`)
		},
	}
	for name, answer := range answers {
		onBatch(t, func(t *testing.T, r *batchRig) {
			r.posts.answer = answer
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					op := r.op(verbSend, fmt.Sprint("t", i))
					op.agent.CallSecret = parley.NewSecret([]byte("secret-of-" + op.id))
					reply, err := r.carry(t.Context(), op, []byte(`{"jsonrpc":"2.0","id":"`+op.id+`"}`))
					text := string(reply.Body)
					if e, ok := errors.AsType[*bridge.ExchangeError](err); ok {
						text += e.Err.Message + string(e.Err.Details) + string(e.Body)
					}
					if text == "" || strings.Contains(strings.ReplaceAll(text, "secret-of-"+op.id, ""), "secret-of-") {
						t.Errorf("%s: %s is told %s", name, op.id, text)
					}
				})
			}
			wg.Wait()
			if got := r.posts.sizes(); !slices.Equal(got, []int{3}) {
				t.Errorf("%s: exchanges of %v requests, want one of 3", name, got)
			}
		})
	}
}

// TestBatchPanics: who stumbles over an answer does so where each call is shielded
// from it, not in a goroutine of the batch's own, which would end the process. The
// next batch is not concerned.
func TestBatchPanics(t *testing.T) {
	for _, n := range []int{1, 3} {
		onBatch(t, func(t *testing.T, r *batchRig) {
			good := r.posts.answer
			r.posts.answer = func(context.Context, []string, bool) (bridge.Reply, error) { panic("index out of range") }
			var stumbled atomic.Int64
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					defer func() {
						if said := fmt.Sprint(recover()); strings.Contains(said, "index out of range") && strings.Contains(said, "TestBatchPanics") {
							stumbled.Add(1)
						}
					}()
					got, f, err := r.call(t.Context(), r.op(verbGet, fmt.Sprint("t", i)))
					t.Errorf("%d calls: got %s, %v, %v", n, got, f, err)
				})
			}
			wg.Wait()
			if stumbled.Load() != int64(n) {
				t.Errorf("%d of %d calls have stumbled", stumbled.Load(), n)
			}
			r.posts.answer = good
			r.each(t, verbGet, n, func(id, result string, f *failure, err error) {
				if result != `"of `+id+`"` || f != nil || err != nil {
					t.Errorf("%s got %s, %v, %v", id, result, f, err)
				}
			})
		})
	}
}

// TestBatchKeepsAnswers: what an agent has answered counts, whatever becomes of the
// calls beside it.
func TestBatchKeepsAnswers(t *testing.T) {
	onBatch(t, func(t *testing.T, r *batchRig) { // one by one, since the agent takes no batches
		good := r.posts.answer
		r.posts.answer = func(ctx context.Context, ids []string, isBatch bool) (bridge.Reply, error) {
			switch {
			case isBatch:
				return ok200(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no batches"}}`)
			case ids[0] == "run-1.ask.1":
				panic("index out of range")
			}
			return good(ctx, ids, isBatch)
		}
		var stumbled atomic.Int64
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						stumbled.Add(1)
					}
				}()
				id := fmt.Sprint("run-1.ask.", i)
				if result, f, err := r.call(t.Context(), r.op(verbGet, id)); result != `"of `+id+`"` || f != nil || err != nil {
					t.Errorf("%s got %s, %v, %v", id, result, f, err)
				}
			})
		}
		wg.Wait()
		if stumbled.Load() != 1 {
			t.Errorf("%d calls have stumbled", stumbled.Load())
		}
	})
	onBatch(t, func(t *testing.T, r *batchRig) { // together, where only some have been given theirs
		r.posts.answer = func(context.Context, []string, bool) (bridge.Reply, error) { panic("index out of range") }
		g := &batch{timer: time.NewTimer(time.Hour)}
		g.ctx, g.cancel = context.WithCancel(t.Context())
		for i := range 3 {
			op := r.op(verbGet, fmt.Sprint("t", i))
			g.members = append(g.members, &batchMember{ctx: t.Context(), op: op, body: []byte(`{"jsonrpc":"2.0","id":"` + op.id + `"}`), done: make(chan struct{})})
		}
		g.members[0].reply.Status, g.members[1].err = http.StatusOK, errors.New("refused")
		r.mu.Lock()
		r.sendLocked(g)
		r.mu.Unlock()
		for i, m := range g.members {
			if <-m.done; (m.panicked != "") != (i == 2) {
				t.Errorf("member %d: %q", i, m.panicked)
			}
		}
	})
}

// TestBatchGivenUp proves that a request that is given up goes alone: before the
// batch is sent it is taken out, afterwards the others get their answers, and
// without any of them the exchange ends.
func TestBatchGivenUp(t *testing.T) {
	onBatch(t, func(t *testing.T, r *batchRig) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := r.call(ctx, r.op(verbSend, "early"))
			wantLinkError(t, err, bridge.NotSent, parley.CodeCancelled)
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		r.each(t, verbSend, 2, func(id, result string, _ *failure, err error) {
			if result != `"of `+id+`"` {
				t.Errorf("%s got %s, %v", id, result, err)
			}
		})
		wg.Wait()
		if body := strings.Join(r.posts.bodies, ""); strings.Contains(body, "early") {
			t.Errorf("sent although it was given up: %s", body)
		}
	})
	onBatch(t, func(t *testing.T, r *batchRig) {
		ended := make(chan struct{})
		r.posts.answer = func(ctx context.Context, ids []string, _ bool) (bridge.Reply, error) {
			select {
			case <-time.After(time.Minute):
				return inOrder(func([]string) {})(ctx, ids, true)
			case <-ctx.Done():
				close(ended)
				return bridge.Reply{}, &bridge.ExchangeError{Disposition: bridge.Lost, Err: parley.Errorf(parley.CodeCancelled, "given up")}
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := r.call(short, r.op(verbGet, "short"))
			wantLinkError(t, err, bridge.Lost, parley.CodeTimeout)
		})
		wg.Go(func() {
			if got, _, err := r.call(t.Context(), r.op(verbGet, "long")); got != `"of long"` {
				t.Errorf("the other one got %s, %v", got, err)
			}
		})
		wg.Wait()
		for _, id := range []string{"x", "y"} {
			wg.Go(func() {
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err := r.call(short, r.op(verbGet, id))
				wantLinkError(t, err, bridge.Lost, parley.CodeTimeout)
			})
		}
		wg.Wait()
		<-ended
	})
}

func TestBatchClose(t *testing.T) {
	onBatch(t, func(t *testing.T, r *batchRig) {
		r.posts.answer = func(ctx context.Context, _ []string, _ bool) (bridge.Reply, error) {
			<-ctx.Done()
			return bridge.Reply{}, &bridge.ExchangeError{Disposition: bridge.Lost, Err: (&oneCall{op: r.op(verbGet, "x")}).errorf(parley.CodeCancelled, "x")}
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			r.each(t, verbGet, 2, func(_, _ string, _ *failure, err error) { wantLinkError(t, err, bridge.Lost, parley.CodeCancelled) })
		})
		time.Sleep(time.Second)
		wg.Go(func() {
			_, _, err := r.call(t.Context(), r.op(verbGet, "late"))
			wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
		})
		synctest.Wait()
		r.close()
		wg.Wait()
	})
}
