package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// follow attaches to a task, past Parley.
func (r route) follow(t *testing.T, a *agent, id string) *listener {
	t.Helper()
	return r.listen(t, a, ask{method: r.says("subscribe"), params: map[string]any{"id": id}})
}

// TestQuirkStreamForm reads the bytes of a stream: ids of no use, line ends of
// two kinds. TestStream shows that a run reads them all.
func TestQuirkStreamForm(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"": "begins with task, no ids, LF", "PY10": "begins with task, no ids, CRLF", "PY10/0.3": "begins with task, no ids, CRLF",
		"PY03": "begins with task, no ids, CRLF",
		"GO10": "begins with task, random ids, LF", "GO10/0.3": "begins with task, random ids, LF", "GO03": "begins with task, random ids, LF",
		"JAVA03": "begins with statusUpdate, ids from 0, LF",
	}, func(t *testing.T, r route, a *agent) string {
		l := r.listen(t, a, ask{method: r.says("stream"), params: r.letter(unique("form"), "chunks 2", true, nil)})
		events, err := l.rest(t)
		if err != nil || len(events) < 4 || l.crlf > 0 && l.lf > 0 {
			t.Fatal(err, events, l.crlf, l.lf)
		}
		ids, ends := "no ids", "LF"
		switch first, second := events[0].id, events[1].id; {
		case first == "0" && second == "1":
			ids = "ids from 0"
		case len(first) > 30 && len(second) > 30 && first != second:
			ids = "random ids"
		case first != "" || second != "":
			ids = first + " " + second
		}
		if l.crlf > 0 {
			ends = "CRLF"
		}
		return fmt.Sprintf("begins with %s, %s, %s", events[0].sort(), ids, ends)
	})
}

// TestQuirkPing is silent for a while: Python sends a comment every 15 seconds.
// A run is not disturbed, and its stream tells how the task ends.
func TestQuirkPing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, r := range rpcRoutes() {
		if r.kind != python10 && r.kind != python03 {
			continue
		}
		t.Run(r.name(), func(t *testing.T) {
			parallel(t)
			a, key := sharedAgent(t, r.kind), unique("silent")
			name := w.register(t, registration{url: r.url(a), config: r.pins(map[string]any{"send": "stream"})})
			run := w.start(t, name, "hold "+key)
			l := r.listen(t, a, ask{method: r.says("stream"), params: r.letter(unique("ping"), "hold "+key, true, nil)})
			w.accepted(t, run)
			time.Sleep(20 * time.Second)
			a.release(t, key)
			if o := done(t, w.end(t, run)); o.Text != "held "+key {
				t.Errorf("output %s", o.raw)
			}
			if _, err := l.rest(t); err != nil || len(l.comments) == 0 || !strings.HasPrefix(l.comments[0], "ping") {
				t.Errorf("comments %q, %v", l.comments, err)
			}
		})
	}
}

// TestQuirkStreamRefused attaches to a task that is not there, and to one that
// has ended: the error comes as an answer, as an event, or not at all.
func TestQuirkStreamRefused(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"GO10": "event -32001, ended event -32001", "GO10/0.3": "event -32001, ended event -32001", "GO03": "event -32001, ended event -32001",
		"PY10": "answer -32001, ended answer -32004", "JS10": "answer -32001, ended answer -32004",
		"PY10/0.3": "event -32001, ended event -32004", "JS10/0.3": "error event -32001, ended error event -32004",
		"PY03": "event -32001, ended event -32602", "JS03": "error event -32001, ended completed",
		"JAVA03": "event -32001, ended event -32001",
	}, func(t *testing.T, r route, a *agent) string {
		refusal := func(id string) string {
			l := r.follow(t, a, id)
			events, err := l.rest(t)
			switch {
			case err != nil:
				t.Error(err)
			case len(events) == 0:
				return "answer " + l.reply.verdict()
			case len(events) != 1:
				t.Errorf("events %v", events)
			case events[0].failure().Code == 0:
				return events[0].state()
			}
			return strings.TrimSpace(fmt.Sprint(events[0].name, " event ", events[0].failure().Code))
		}
		return refusal("nobody") + ", ended " + refusal(r.mail(t, a, "echo one", nil).task(t).ID)
	})
}

// TestQuirkReattach attaches to a task at work: what was missed comes as a whole
// task, or not at all, and some do not even begin to answer before something
// happens. Java counts its ids from 0 again, so they are no cursor. TestCutStream
// shows what the run sees.
func TestQuirkReattach(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"": "task", "GO03": "only what follows", "PY03": "only what follows", "JAVA03": "only what follows, ids from 0",
	}, func(t *testing.T, r route, a *agent) string {
		key := unique("again")
		id := r.leave(t, a, "hold "+key).ID
		r.became(t, a, id, "working")
		opened := r.opening(t, a, ask{method: r.says("subscribe"), params: map[string]any{"id": id}})
		// Half a second for what would come if something came by itself.
		timer := time.AfterFunc(500*time.Millisecond, func() { _ = a.open(key) })
		defer timer.Stop()
		l, err := (<-opened)()
		if err != nil {
			t.Fatal(err)
		}
		e, ok := l.next(t)
		if !ok {
			t.Fatal("the stream ends at once")
		}
		a.release(t, key)
		switch sort := e.sort(); {
		case sort == "task" && e.state() == "working":
			return "task"
		case sort != "artifactUpdate":
			return e.data
		case e.id == "0":
			return "only what follows, ids from 0"
		}
		return "only what follows"
	})
}

// TestQuirkReattachToQuestion attaches to a task that waits for an answer: it is
// refused, shown and the stream stays open or ends, or nothing comes at all. A
// run shows the question with all of them, also if the stream was cut.
func TestQuirkReattachToQuestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sees(t, map[string]string{
		"GO10": "-32001", "GO10/0.3": "-32001", "GO03": "-32001", "PY03": "-32001",
		"PY10": "task, stays open", "PY10/0.3": "task, stays open", "JS10": "task, stays open", "JS10/0.3": "task, stays open",
		"JS03": "task, end", "JAVA03": "not even headers",
	}, func(t *testing.T, r route, a *agent) string {
		name := w.register(t, registration{url: r.url(a), config: r.pins(nil), timeout: 5 * time.Minute})
		run := w.start(t, name, "ask who?")
		asked := w.asked(t, run)
		w.answer(t, run, "me")
		done(t, w.end(t, run))
		if q := asked.Steps[0].Question; q.Text != "who?" {
			t.Errorf("question %+v", q)
		}
		id := r.mail(t, a, "ask who?", nil).task(t).ID
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		timer := time.AfterFunc(patience/3, leave)
		defer timer.Stop()
		resp, err := r.post(ctx, a, ask{method: r.says("subscribe"), params: map[string]any{"id": id}})
		if errors.Is(err, context.Canceled) {
			return "not even headers"
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		timer.Reset(15 * time.Second)
		body, err := io.ReadAll(resp.Body)
		answer := reply{resp.StatusCode, resp.Header, string(body)}
		switch code := answer.failure().Code; {
		case code != 0:
			return fmt.Sprint(code)
		case errors.Is(err, context.Canceled):
			return event{data: answer.json()}.sort() + ", stays open"
		}
		return event{data: answer.json()}.sort() + ", end"
	})
}

// TestQuirkCrashInStream has executors throw inside a stream: it ends in five
// ways. TestQuirkCrash shows what the run sees.
func TestQuirkCrashInStream(t *testing.T) {
	t.Parallel()
	sees(t, map[string]string{
		"PY03": "nothing, cut; late task, cut",
		"PY10": "-32603; late task, statusUpdate, error event -32603, get failed", "PY10/0.3": "event -32603; late task, statusUpdate, event -32603, get failed",
		"GO10": "event -32603; late failed without words", "GO10/0.3": "event -32603; late failed without words", "GO03": "event -32603; late failed without words",
		"JS10": "failed with words; late failed with words", "JS10/0.3": "failed with words; late failed with words",
		"JS03": "failed with words; late failed with words",
	}, func(t *testing.T, r route, a *agent) string {
		stream := func(text string) (*listener, []event, error) {
			l := r.listen(t, a, ask{method: r.says("stream"), params: r.letter(unique("crash"), text, true, nil)})
			events, err := l.rest(t)
			return l, events, err
		}
		early, events, err := stream("crash")
		late, lateEvents, lateErr := stream("late-crash")
		if late.reply.status != http.StatusOK {
			t.Errorf("status %d", late.reply.status)
		}
		switch r.kind {
		case java03:
			return "" // as it happens: TestQuirkJavaCrash
		case python03:
			if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(lateErr, io.ErrUnexpectedEOF) || len(events) > 0 || len(lateEvents) > 2 {
				t.Errorf("%v %v; %v %v", events, err, lateEvents, lateErr)
			}
			return "nothing, cut; late task, cut"
		case js10, js03:
			return "failed" + withWords(events) + "; late failed" + withWords(lateEvents)
		case go10, go03:
			// The last event is the failed task, or the error itself, as it happens.
			last := lateEvents[len(lateEvents)-1]
			if code := last.failure().Code; code != -32603 && (last.sort() != "task" || last.state() != "failed" || withWords(lateEvents) != "") {
				t.Errorf("the last event is %+v", last)
			}
			return fmt.Sprintf("event %d; late failed without words", events[0].failure().Code)
		case python10:
		}
		first := early.reply.verdict()
		if len(events) > 0 {
			first = fmt.Sprint("event ", events[0].failure().Code)
		}
		last := lateEvents[len(lateEvents)-1]
		k := r.became(t, a, lateEvents[0].task().ID, "failed")
		if len(k.Status.Message) > 0 && !strings.Contains(string(k.Status.Message), "null") {
			t.Errorf("the failed task says %s", k.Status.Message)
		}
		return fmt.Sprintf("%s; late %s, %s, %s, get %s", first, lateEvents[0].sort(), lateEvents[1].sort(),
			strings.TrimSpace(fmt.Sprint(last.name, " event ", last.failure().Code)), k.state())
	})
}

// withWords says whether the last event has a message.
func withWords(events []event) string {
	if len(events[len(events)-1].task().Status.Message) > 0 {
		return " with words"
	}
	return ""
}

// TestQuirkJavaCrash has Java's executor throw: it answers with an error, or not
// at all, or leaves the task at work for ever, as it happens. The run fails in one
// of the ways that say so, and the agent executes it once.
func TestQuirkJavaCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := java03.routes()[0]
	for _, send := range []string{"nonblocking", "blocking", "stream"} {
		for _, text := range []string{"crash", "late-crash"} {
			t.Run(send+"/"+text, func(t *testing.T) {
				parallel(t)
				a := sharedAgent(t, java03)
				name := w.register(t, registration{
					url: r.url(a), config: r.pins(map[string]any{"send": send}), timeout: r.crashTimeout(), policy: parley.OutcomeLookup,
				})
				run := w.end(t, w.callWithin(t, name, text, 30*time.Second))
				e := failed(t, run)
				switch end := ending(e); end {
				case endError, endUnknown:
				case endNever:
					if text == "crash" {
						t.Errorf("a crash before any event left a task: %s", show(run))
					}
				default:
					t.Errorf("ended as %q: %s", end, show(run))
				}
				if executions, _ := a.entries(t, run.ID); len(executions) != 1 {
					t.Errorf("executed %d times", len(executions))
				}
			})
		}
	}
}
