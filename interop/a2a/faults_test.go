package a2a

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestLostAnswer loses the answer to the send on the way: the agent has got the
// message, and the policy says what follows (language rule R1).
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range routes() {
		for _, policy := range []parley.OutcomePolicy{parley.OutcomeLookup, parley.OutcomeFail, parley.OutcomeResend} {
			t.Run(r.name()+"/"+string(policy), func(t *testing.T) {
				parallel(t)
				a := sharedAgent(t, r.kind)
				url, swallowed := r.loseAnswer(t, a)
				name := w.register(t, registration{url: url, config: r.pins(nil), policy: policy})
				run := w.call(t, name, "echo once")
				if n := swallowed(); n != 1 {
					t.Errorf("%d answers were lost", n)
				}
				executions, _ := a.entries(t, run.ID)
				switch {
				case policy == parley.OutcomeResend:
					done(t, run)
					if len(executions) != 2 || executions[0].Message != executions[1].Message {
						t.Errorf("executions %+v", executions)
					}
					return
				case policy == parley.OutcomeLookup && r.version == "1.0":
					if o := done(t, run); o.Text != "once" {
						t.Errorf("output %s", o.raw)
					}
				default:
					// A2A 0.3 has no list of tasks over JSON-RPC.
					if e := failed(t, run); e.Code != parley.CodeOutcomeUnknown {
						t.Errorf("error %+v", e)
					}
				}
				if len(executions) != 1 {
					t.Errorf("executed %d times", len(executions))
				}
			})
		}
	}
}

// loseAnswer puts a proxy in front of a that loses the first answer to a send;
// lost says how many were.
func (r route) loseAnswer(t *testing.T, a *agent) (url string, lost func() int) {
	t.Helper()
	if r.binding == "GRPC" {
		p := newFrameProxy(t, a, "msg-", fateLost)
		return p.through(t, r.url(a)), func() int {
			_, met := p.counts()
			return met
		}
	}
	p := newProxy(t, a.where["url"])
	p.swallowNext(1)
	return p.through(t, r.url(a)), p.swallowed
}

// TestKilledBeforeAnswer kills Parley after the agent has got the message and
// before any answer came.
func TestKilledBeforeAnswer(t *testing.T) {
	t.Parallel()
	first := newProcess(t, "")
	type killed struct {
		route
		agent  *agent
		policy parley.OutcomePolicy
		run    string
	}
	var all []killed
	for _, r := range routes() {
		for _, policy := range []parley.OutcomePolicy{parley.OutcomeLookup, parley.OutcomeFail} {
			k := killed{route: r, agent: sharedAgent(t, r.kind), policy: policy}
			name := first.register(t, registration{url: r.stallAnswer(t, k.agent), config: r.pins(nil), policy: policy})
			k.run = first.start(t, name, "echo once")
			all = append(all, k)
		}
	}
	for _, k := range all {
		eventually(t, k.name()+" to be executed", func() bool {
			executions, _ := k.agent.entries(t, k.run)
			return len(executions) == 1
		})
	}
	first.kill()
	second := first.again(t)
	for _, k := range all {
		t.Run(k.name()+"/"+string(k.policy), func(t *testing.T) {
			t.Parallel()
			run := second.end(t, k.run)
			if k.policy == parley.OutcomeLookup && k.version == "1.0" {
				if o := done(t, run); o.Text != "once" {
					t.Errorf("output %s", o.raw)
				}
			} else if e := failed(t, run); e.Code != parley.CodeOutcomeUnknown {
				t.Errorf("error %+v", e)
			}
			if executions, _ := k.agent.entries(t, k.run); len(executions) != 1 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}

// stallAnswer puts a proxy in front of a that keeps the first answer to a send
// to itself.
func (r route) stallAnswer(t *testing.T, a *agent) (url string) {
	t.Helper()
	if r.binding == "GRPC" {
		return newFrameProxy(t, a, "msg-", fateStalled).through(t, r.url(a))
	}
	p := newProxy(t, a.where["url"])
	p.stallNext(1)
	return p.through(t, r.url(a))
}

// TestParleyRestarted kills Parley while agents work, and while they wait for an
// answer.
func TestParleyRestarted(t *testing.T) {
	t.Parallel()
	first := newProcess(t, "")
	type cut struct {
		scene
		run, asks string
	}
	var all []*cut
	for _, r := range routes() {
		for _, send := range []string{"nonblocking", "stream"} {
			c := &cut{scene: scene{world: first, route: r, agent: sharedAgent(t, r.kind)}}
			c.name = first.register(t, registration{url: r.url(c.agent), config: r.pins(map[string]any{"send": send})})
			c.run = first.start(t, c.name, "hold "+c.key())
			c.asks = first.start(t, c.name, "ask who?")
			all = append(all, c)
		}
	}
	for _, c := range all {
		first.accepted(t, c.run)
		first.asked(t, c.asks)
	}
	first.kill()
	second := first.again(t)
	for _, c := range all {
		c.agent.release(t, c.key())
		second.answer(t, c.asks, "me")
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if o := done(t, second.end(t, c.run)); o.Text != "held "+c.key() {
				t.Errorf("output %s", o.raw)
			}
			if o := done(t, second.end(t, c.asks)); o.Text != "answer: me" {
				t.Errorf("output %s", o.raw)
			}
			c.once(t, c.run)
			if executions, _ := c.agent.entries(t, c.asks); len(executions) != 2 {
				t.Errorf("question and answer were executed %d times", len(executions))
			}
		})
	}
}

// TestCutStream cuts the stream of a task in the middle, twice. Over gRPC the
// first cut comes with the stream's first event.
func TestCutStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range routes() {
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a := sharedAgent(t, r.kind)
			var p *proxy
			cuts := 2
			if r.binding == "GRPC" {
				fp := newFrameProxy(t, a, "msg-", fateCut)
				t.Cleanup(func() {
					if passed, met := fp.counts(); passed != 1 || met != 1 {
						t.Errorf("%d messages were sent, and %d streams cut at their first event", passed, met)
					}
				})
				p, cuts = fp.proxy, 1
			} else {
				p = newProxy(t, a.where["url"])
			}
			name := w.register(t, registration{
				url: p.through(t, r.url(a)), config: r.pins(map[string]any{"send": "stream"}), policy: parley.OutcomeLookup,
			})
			id := w.start(t, name, "hold "+name)
			w.accepted(t, id)
			for range cuts {
				eventually(t, "a stream to cut", func() bool { return p.cut() > 0 })
				time.Sleep(50 * time.Millisecond)
			}
			a.release(t, name)
			if o := done(t, w.end(t, id)); o.Text != "held "+name {
				t.Errorf("output %s", o.raw)
			}
			if executions, _ := a.entries(t, id); len(executions) != 1 {
				t.Errorf("executed %d times", len(executions))
			}
		})
	}
}

// settledAgent is an agent whose addresses stay the same when it is restarted:
// they are those of proxies, since nobody can keep a port free for it.
func settledAgent(t *testing.T, k kind, s setup) *agent {
	t.Helper()
	doors := [2]*proxy{newProxy(t, "http://127.0.0.1:1"), newProxy(t, "http://127.0.0.1:1")}
	return settle(t, doors, func(s setup) *agent { return ownAgent(t, k, s) }, s)
}

// settle starts an agent behind doors, those of HTTP and gRPC.
func settle(t *testing.T, doors [2]*proxy, start func(setup) *agent, s setup) *agent {
	t.Helper()
	s.public = "http://" + doors[0].l.Addr().String()
	a := start(s)
	a.doors = doors
	own := a.where["url"]
	doors[0].lead(strings.TrimPrefix(own, "http://"))
	for name, address := range a.where {
		switch name {
		case "grpc":
			doors[1].lead(address)
			a.where[name] = doors[1].l.Addr().String()
		default:
			a.where[name] = strings.Replace(address, own, s.public, 1)
		}
	}
	return a
}

// restart kills a settled agent and puts one of kind k in its place.
func (a *agent) restart(t *testing.T, k kind, s setup) *agent {
	t.Helper()
	a.kill()
	return settle(t, a.doors, func(s setup) *agent { return ownAgentAt(t, k, a.log, s) }, s)
}

// TestAgentRestartedWithStore restarts an agent that keeps its tasks while it
// waits for an answer: the answer reaches the new process.
func TestAgentRestartedWithStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range []kind{python10, python03} {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			s := setup{db: filepath.Join(t.TempDir(), "tasks.db"), dual: k == python10}
			a := settledAgent(t, k, s)
			runs := make(map[string]string)
			for _, r := range k.routes() {
				id := w.start(t, w.register(t, registration{url: r.url(a), config: r.pins(nil)}), "ask who?")
				w.asked(t, id)
				runs[r.name()] = id
			}
			b := a.restart(t, k, s)
			for name, id := range runs {
				w.answer(t, id, "me")
				if o := done(t, w.end(t, id)); o.Text != "answer: me" {
					t.Errorf("%s: output %s", name, o.raw)
				}
				executions, _ := b.entries(t, id)
				if len(executions) != 2 || executions[0].PID == executions[1].PID || executions[0].Task != executions[1].Task {
					t.Errorf("%s: executions %+v", name, executions)
				}
			}
		})
	}
}

// TestAgentRestartedWithoutStore restarts an agent that forgets its tasks: the
// policy says what follows.
func TestAgentRestartedWithoutStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, k := range kinds() {
		t.Run(string(k), func(t *testing.T) {
			parallel(t)
			s := setup{dual: k.dual()}
			a := settledAgent(t, k, s)
			type lost struct {
				route
				policy parley.OutcomePolicy
				run    string
			}
			var all []lost
			for _, r := range k.routes() {
				for _, policy := range []parley.OutcomePolicy{parley.OutcomeLookup, parley.OutcomeResend} {
					name := w.register(t, registration{url: r.url(a), config: r.pins(nil), policy: policy})
					all = append(all, lost{r, policy, w.start(t, name, "hold the line")})
				}
			}
			for _, l := range all {
				w.accepted(t, l.run)
			}
			b := a.restart(t, k, s)
			b.release(t, "the line")
			for _, l := range all {
				run := w.end(t, l.run)
				executions, _ := b.entries(t, l.run)
				if l.policy == parley.OutcomeResend {
					if o := done(t, run); o.Text != "held the line" || len(executions) != 2 {
						t.Errorf("%s: executed %d times, output %s", l.name(), len(executions), o.raw)
					}
				} else if e := failed(t, run); e.Code != parley.CodeOutcomeUnknown || len(executions) != 1 {
					t.Errorf("%s: executed %d times, error %+v", l.name(), len(executions), e)
				}
			}
		})
	}
}

// TestNobodyThere calls an agent where nobody listens.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range go10.routes() {
		t.Run(r.name(), func(t *testing.T) {
			t.Parallel()
			name := w.register(t, registration{url: "http://127.0.0.1:1/", config: r.pins(nil)})
			e := failed(t, w.call(t, name, "echo one"))
			if e.Code != parley.CodeAgentUnavailable || !e.Retryable || !strings.Contains(e.Message, "refused") {
				t.Errorf("error %+v", e)
			}
		})
	}
}
