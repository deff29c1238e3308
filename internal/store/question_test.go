package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

const task1 = "run-1.a.1"

// followed starts a run with one attempt, which its owner follows.
func followed(t testing.TB, db *DB, run, worker string) (Run, Claim) {
	t.Helper()
	a := attempt(run, "a", 1)
	r := begin(t, db, run, a)
	c := claim(t, db, bridge(t, db, worker), a.ID, "t1")
	follow(t, db, a.ID, c)
	return r, c
}

func follow(t testing.TB, db *DB, task string, c Claim) {
	t.Helper()
	moved(t, db, Move{
		Kind: MoveFollow, TaskID: task, From: c, AgentTaskID: "at", AgentContextID: "ac", AgentEndpoint: "http://a/rpc", AgentVersion: "1.0",
	})
}

// moved makes a move that has to succeed.
func moved(t testing.TB, db *DB, m Move) {
	t.Helper()
	m.At = epoch
	if !must(db.Move(t.Context(), m))(t) {
		t.Fatalf("%s of %s was refused", m.Kind, m.TaskID)
	}
}

// refusedMove makes a move that has to write nothing.
func refusedMove(t testing.TB, db *DB, m Move) {
	t.Helper()
	m.At = epoch
	before := dump(t, db)
	if must(db.Move(t.Context(), m))(t) {
		t.Fatalf("%s of %s was accepted", m.Kind, m.TaskID)
	}
	diff(t, dump(t, db), before)
}

// idle makes a move that has to succeed without writing.
func idle(t testing.TB, db *DB, m Move) {
	t.Helper()
	before := dump(t, db)
	moved(t, db, m)
	diff(t, dump(t, db), before)
}

func asking(task string, c Claim, text string) Move {
	return Move{Kind: MoveQuestion, TaskID: task, From: c, Question: &parley.Question{Kind: parley.QuestionInput, Text: text}}
}

// numbered is the question as the one of that number.
func numbered(m Move, n int) Move { m.Questions = n; return m }

func goesOn(task string, c Claim) Move { return Move{Kind: MoveQuestion, TaskID: task, From: c} }

func sending(task string, c Claim, questions int) Move {
	return Move{Kind: MoveReply, TaskID: task, From: c, Questions: questions}
}

// replying gives the decision that answers the question of that number.
func replying(seen Run, task string, questions int, text string) Decision {
	d := next(seen, 1)
	d.Replies = []TaskReply{{task, questions, parley.Reply{Text: text, By: "ann"}}}
	return d
}

func news(t testing.TB, db *DB) []string {
	t.Helper()
	return must(db.Wakeups(t.Context(), epoch, 10))(t).News
}

func owned(t testing.TB, db *DB, c Claim) Owned {
	t.Helper()
	list := must(db.Owned(t.Context(), c.Worker, c.Inc))(t)
	if len(list) != 1 {
		t.Fatalf("%d attempts are owned", len(list))
	}
	return list[0]
}

func TestFollowKeepsWhereTheTaskIs(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		_, c := followed(t, db, "run-1", "b1")
		a := row(t, db, task1)
		diff(t, []string{a.AgentTaskID, a.AgentContextID, a.AgentEndpoint, a.AgentVersion}, []string{"at", "ac", "http://a/rpc", "1.0"})
		// The agent has moved: the same task under another address.
		moved(t, db, Move{Kind: MoveFollow, TaskID: task1, From: c, AgentTaskID: "at", AgentEndpoint: "http://b/rpc", AgentVersion: "0.3"})
		a = row(t, db, task1)
		diff(t, []string{a.AgentTaskID, a.AgentContextID, a.AgentEndpoint, a.AgentVersion}, []string{"at", "", "http://b/rpc", "0.3"})
		for _, m := range []Move{{AgentEndpoint: strings.Repeat("x", 2049)}, {AgentVersion: strings.Repeat("x", 65)}} {
			m.Kind, m.TaskID, m.From, m.AgentTaskID = MoveFollow, task1, c, "at"
			_, err := db.Move(t.Context(), m)
			wantCode(t, err, parley.CodeLimit)
		}
	})
}

// The life of one question: asked, seen, answered, handed over, done.
func TestQuestionAndReply(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run, c := followed(t, db, "run-1", "b1")
		diff(t, news(t, db), []string(nil))
		refusedMove(t, db, sending(task1, c, 0))
		idle(t, db, goesOn(task1, c)) // nothing was asked

		first := asking(task1, c, "Which <city>?\u2028")
		first.Question.Note = "The agent \"refused\" the last answer"
		first.Question.Parts = json.RawMessage(`[ {"n": 1234567890123456789012 } ]`)
		moved(t, db, first)
		a := row(t, db, task1)
		diff(t, a.Question, first.Question)
		diff(t, []int{a.Questions, a.News, a.NewsSeen}, []int{1, 1, 0})
		idle(t, db, first) // its reply was lost, or the next poll said the same
		diff(t, news(t, db), []string{"run-1"})
		diff(t, must(db.Wakeups(t.Context(), epoch, 10))(t).Settled, []string(nil))

		other, beside := followed(t, db, "run-2", "b2")
		moved(t, db, asking("run-2.a.1", beside, "When?"))
		d := next(run, 1)
		d.NewsSeen = []NewsSeen{{task1, 1}}
		check(t, db.Decide(t.Context(), d))
		diff(t, news(t, db), []string{"run-2"})
		its := next(other, 1)
		its.NewsSeen = []NewsSeen{{"run-2.a.1", 1}}
		check(t, db.Decide(t.Context(), its))
		diff(t, news(t, db), []string(nil))
		diff(t, row(t, db, task1).NewsSeen, 1)
		diff(t, owned(t, db, c).Reply, (*parley.Reply)(nil))
		refusedMove(t, db, sending(task1, c, 1))

		e := replying(d.Run, task1, 1, "")
		e.Replies[0].Reply = parley.Reply{Data: json.RawMessage("{ \"city\":\t\"K<ö>ln\" }"), By: "ann"}
		e.NewsSeen = []NewsSeen{{task1, 0}} // an older number takes nothing back
		check(t, db.Decide(t.Context(), e))
		diff(t, row(t, db, task1).NewsSeen, 1)
		o := owned(t, db, c)
		diff(t, []any{*o.Reply, o.Questions}, []any{e.Replies[0].Reply, 1})
		idle(t, db, numbered(first, 1)) // only now its owner hears that it was recorded
		refusedMove(t, db, numbered(first, 3))
		refusedMove(t, db, numbered(asking(task1, c, "other?"), 1))
		refusedMove(t, db, sending(task1, c, 2))

		moved(t, db, sending(task1, c, 1))
		idle(t, db, sending(task1, c, 1)) // its reply was lost
		diff(t, owned(t, db, c).Reply, (*parley.Reply)(nil))
		a = row(t, db, task1)
		diff(t, []any{*a.Reply, a.ReplySent}, []any{e.Replies[0].Reply, true})

		// The agent goes on: the run knows, so that it is no news.
		moved(t, db, goesOn(task1, c))
		a = row(t, db, task1)
		diff(t, []any{a.Question, a.Reply, a.ReplySent, a.Questions, a.News}, []any{(*parley.Question)(nil), (*parley.Reply)(nil), false, 1, 1})

		// It asks the same again, and then does without an answer.
		moved(t, db, first)
		moved(t, db, goesOn(task1, c))
		a = row(t, db, task1)
		diff(t, []int{a.Questions, a.News}, []int{2, 3})
		diff(t, news(t, db), []string{"run-1"})

		// What has ended has no news.
		moved(t, db, first)
		must(db.Answer(t.Context(), answer(task1, `1`)))(t)
		diff(t, news(t, db), []string(nil))
		refusedMove(t, db, first)
		refusedMove(t, db, goesOn(task1, c))
	})
}

func TestAnotherQuestionDropsTheReply(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run, c := followed(t, db, "run-1", "b1")
		moved(t, db, asking(task1, c, "one?"))
		d := replying(run, task1, 1, "1")
		check(t, db.Decide(t.Context(), d))
		moved(t, db, numbered(asking(task1, c, "two?"), 2))
		a := row(t, db, task1)
		diff(t, []any{a.Question.Text, a.Reply, a.Questions, a.News}, []any{"two?", (*parley.Reply)(nil), 2, 2})
		refusedMove(t, db, sending(task1, c, 1))

		// Asked again after the answer has left: it is asked anew.
		d = replying(d.Run, task1, 2, "2")
		check(t, db.Decide(t.Context(), d))
		moved(t, db, sending(task1, c, 2))
		moved(t, db, asking(task1, c, "two?"))
		a = row(t, db, task1)
		diff(t, []any{a.Reply, a.ReplySent, a.Questions, a.News}, []any{(*parley.Reply)(nil), false, 3, 3})
	})
}

// Whatever does not answer the question that stands writes nothing at all.
func TestRepliesAreRefused(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run, c := followed(t, db, "run-1", "b1")
		refused := func(why string, d Decision) {
			t.Helper()
			before := dump(t, db)
			if err := db.Decide(t.Context(), d); err != ErrStale {
				t.Fatalf("%s: %v", why, err)
			}
			diff(t, dump(t, db), before)
		}
		refused("no question", replying(run, task1, 0, "x"))
		refused("no attempt", replying(run, "run-1.b.1", 0, "x"))
		moved(t, db, asking(task1, c, "one?"))
		refused("a former question", replying(run, task1, 0, "x"))
		refused("a later question", replying(run, task1, 2, "x"))
		stale := replying(run, task1, 1, "x")
		stale.Seen, stale.Run.Seq, stale.Events[0].Seq = stale.Seen-1, stale.Run.Seq-1, stale.Events[0].Seq-1
		refused("an older state of the run", stale)
		d := replying(run, task1, 1, "x")
		check(t, db.Decide(t.Context(), d))
		refused("answered", replying(d.Run, task1, 1, "y"))
		moved(t, db, sending(task1, c, 1))
		refused("sent", replying(d.Run, task1, 1, "y"))
		must(db.Answer(t.Context(), answer(task1, `1`)))(t)
		refused("settled", replying(d.Run, task1, 1, "y"))

		long := strings.Repeat("x", 1<<20)
		for code, r := range map[parley.Code]parley.Reply{parley.CodeLimit: {Text: long, By: "a"}, parley.CodeInvalid: {By: "a"}} {
			x := replying(d.Run, task1, 1, "")
			x.Replies[0].Reply = r
			wantCode(t, db.Decide(t.Context(), x), code)
		}
		x := replying(d.Run, task1, 1, "")
		x.Replies[0].Reply.Data = json.RawMessage(`{`)
		wantCode(t, db.Decide(t.Context(), x), parley.CodeInvalid)
	})
}

func TestQuestionLimits(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		_, c := followed(t, db, "run-1", "b1")
		full := json.RawMessage(`["` + strings.Repeat("x", 64<<10-4) + `"]`)
		for _, x := range []struct {
			q    parley.Question
			code parley.Code
		}{
			{parley.Question{Kind: "input", Text: strings.Repeat("x", 64<<10+1)}, parley.CodeLimit},
			{parley.Question{Kind: "input", Text: strings.Repeat("x", 64<<10), Note: "x"}, parley.CodeLimit},
			{parley.Question{Kind: "input", Parts: append(full, ' ')}, parley.CodeLimit},
			{parley.Question{Kind: "input", Parts: json.RawMessage(`[`)}, parley.CodeInvalid},
			{parley.Question{Text: "kind?"}, parley.CodeInvalid},
		} {
			_, err := db.Move(t.Context(), Move{Kind: MoveQuestion, TaskID: task1, From: c, Question: &x.q})
			wantCode(t, err, x.code)
		}
		m := asking(task1, c, strings.Repeat("x", 64<<10))
		m.Question.Parts = full
		moved(t, db, m)
		diff(t, row(t, db, task1).Question, m.Question)
	})
}

// Who takes over is told of an answer that waits. One that may have left is
// theirs to send again only if they decide so.
func TestTakeoverOfAReply(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run, c := followed(t, db, "run-1", "b1")
		moved(t, db, asking(task1, c, "one?"))
		d := replying(run, task1, 1, "1")
		check(t, db.Decide(t.Context(), d))
		take := func(from Claim) Claim {
			t.Helper()
			to := bridge(t, db, from.Worker)
			to.Token = from.Token + "x"
			moved(t, db, Move{Kind: MoveTakeover, TaskID: task1, From: from, To: to, AgentTaskID: "at"})
			return to
		}
		second := take(c)
		diff(t, owned(t, db, second).Reply, &d.Replies[0].Reply)
		refusedMove(t, db, sending(task1, c, 1))
		moved(t, db, sending(task1, second, 1))
		third := take(take(second))
		diff(t, owned(t, db, third).Reply, (*parley.Reply)(nil))
		diff(t, row(t, db, task1).ReplySent, true)
		idle(t, db, sending(task1, third, 1))
		refusedMove(t, db, asking(task1, second, "one?"))
		// Or the question is put once more.
		moved(t, db, asking(task1, third, "one?"))
		check(t, db.Decide(t.Context(), replying(d.Run, task1, 2, "1")))
		moved(t, db, sending(task1, third, 2))
	})
}

// An attempt that begins again has no question, and the run hears so; the
// numbers go on, since the agent may know the former ones.
func TestAgainForgetsTheQuestion(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		_, c := followed(t, db, "run-1", "b1")
		moved(t, db, asking(task1, c, "one?"))
		to := c
		to.Token = "t2"
		moved(t, db, Move{Kind: MoveAgain, TaskID: task1, From: c, To: to})
		a := row(t, db, task1)
		diff(t, []any{a.State, a.Question, a.Questions, a.News, a.AgentEndpoint, a.AgentVersion}, []any{AttemptClaimed, (*parley.Question)(nil), 1, 2, "", ""})
		diff(t, news(t, db), []string{"run-1"})
		refusedMove(t, db, asking(task1, to, "one?"))
		follow(t, db, task1, to)
		moved(t, db, asking(task1, to, "one?"))
		a = row(t, db, task1)
		diff(t, []int{a.Questions, a.News}, []int{2, 3})
	})
}

// An answer is in the row as long as it may be needed, and no longer: it may be
// what lets an agent in.
func TestReplyIsForgotten(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for i, end := range []func(run string, d *Decision){
			func(run string, d *Decision) {
				a := answer(run+".a.1", `1`)
				d.Answer, d.Close = &a, []Close{{TaskID: run + ".a.1", Absorb: true}}
			},
			func(run string, d *Decision) {
				must(db.Answer(t.Context(), answer(run+".a.1", `1`)))(t)
				d.Close = []Close{{TaskID: run + ".a.1", Absorb: true}}
			},
			func(run string, d *Decision) {
				d.Close = []Close{{TaskID: run + ".a.1", Outcome: parley.OutcomeTimeout}}
			},
			func(run string, d *Decision) {
				d.Close = []Close{{TaskID: run + ".a.1", Outcome: parley.OutcomeCancelled}}
			},
		} {
			id := fmt.Sprintf("run-%d", i)
			run, c := followed(t, db, id, id+"-b")
			moved(t, db, asking(id+".a.1", c, "Log in"))
			d := replying(run, id+".a.1", 1, "hunter2")
			check(t, db.Decide(t.Context(), d))
			moved(t, db, sending(id+".a.1", c, 1))
			e := next(d.Run, 1)
			end(id, &e)
			check(t, db.Decide(t.Context(), e))
			diff(t, row(t, db, id+".a.1").Reply, (*parley.Reply)(nil))
		}
	})
}

// FuzzStoredReply: what people and agents say comes back as it was, or is
// refused.
func FuzzStoredReply(f *testing.F) {
	f.Add("Ulm <\u2028>\x00\x7f", []byte("{ \"n\": 1.10 }"), "ann", "input")
	f.Add("", []byte(`[1e400, "\ud800"]`), "", "auth")
	f.Fuzz(func(t *testing.T, text string, data []byte, by, kind string) {
		if !utf8.ValidString(text) || !utf8.ValidString(by) || !utf8.ValidString(kind) {
			return // JSON has no other strings
		}
		data = bytes.TrimSpace(data)
		reply := parley.Reply{Text: text, Data: data, By: by}
		if b, err := encodeReply("t", &reply); err == nil {
			diff(t, must(decodeStored[parley.Reply]("t", b))(t), &reply)
		}
		q := parley.Question{Kind: parley.QuestionKind(kind), Text: text, Parts: data, Note: by}
		if b, err := encodeQuestion("t", &q); err == nil {
			diff(t, must(decodeStored[parley.Question]("t", b))(t), &q)
		}
	})
}

// Rows of the former version stay as they are, there and back.
func TestQuestionsMigration(t *testing.T) {
	ctx := t.Context()
	db, err := Open(ctx, filepath.Join(t.TempDir(), "parley.db"), Options{})
	check(t, err)
	defer func() { check(t, db.Close()) }()
	check(t, db.Migrate(ctx))
	c := bridge(t, db, "b1")
	begin(t, db, "run-1", attempt("run-1", "a", 1))
	check(t, db.MigrateDown(ctx, 2))
	check(t, db.submit(ctx, synced, func(s *session) error {
		_, err := s.exec(`UPDATE attempt SET state = 'following', owner = 'b1', owner_inc = 1, token = 't1', agent_task_id = 'at'`)
		return err
	}))
	before := dump(t, db)

	check(t, db.Migrate(ctx))
	c.Token = "t1"
	a := row(t, db, task1)
	diff(t, []any{a.AgentTaskID, a.AgentEndpoint, a.Question, a.Questions, a.News}, []any{"at", "", (*parley.Question)(nil), 0, 0})
	diff(t, news(t, db), []string(nil))
	moved(t, db, asking(task1, c, "one?"))
	diff(t, news(t, db), []string{"run-1"})

	check(t, db.MigrateDown(ctx, 2))
	diff(t, dump(t, db), before)
	check(t, db.Migrate(ctx))
	diff(t, row(t, db, task1).Question, (*parley.Question)(nil))
}

// A question, its answer and the hand-off cost one synced commit each.
func TestQuestionCosts(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		run, c := followed(t, db, "run-1", "b1")
		cost := func(what string, want int64, f func()) {
			t.Helper()
			before := db.SyncedCommits()
			f()
			if got := db.SyncedCommits() - before; got != want {
				t.Errorf("%s: %d synced commits, want %d", what, got, want)
			}
		}
		cost("question", 1, func() { moved(t, db, asking(task1, c, "one?")) })
		cost("seen and answered", 1, func() {
			d := replying(run, task1, 1, "1")
			d.NewsSeen = []NewsSeen{{task1, 1}}
			check(t, db.Decide(t.Context(), d))
		})
		cost("hand-off", 1, func() { moved(t, db, sending(task1, c, 1)) })
		cost("going on", 1, func() { moved(t, db, goesOn(task1, c)) })
		cost("progress", 0, func() {
			d := next(must(db.RunRow(t.Context(), "run-1"))(t), 2)
			d.Prompt, d.NewsSeen = true, []NewsSeen{{task1, 2}}
			check(t, db.Decide(t.Context(), d))
			diff(t, row(t, db, task1).NewsSeen, 2)
			wantStale(t, db.Decide(t.Context(), d))
			d = next(d.Run, 1)
			d.Prompt, d.Close = true, []Close{{TaskID: task1, Outcome: parley.OutcomeCancelled}}
			wantCode(t, db.Decide(t.Context(), d), parley.CodeInvalid)
		})
		cost("looking", 0, func() { news(t, db); owned(t, db, c) })
	})
}

// questionRaces are the pairs of writers that meet over a question.
func questionRaces() []race {
	ctx := context.Background()
	mover := func(t *testing.T, db *DB, m Move) func() bool {
		m.At = epoch
		return func() bool { return must(db.Move(ctx, m))(t) }
	}
	decider := func(t *testing.T, db *DB, d Decision) func() bool {
		return func() bool {
			err := db.Decide(ctx, d)
			if err != nil && err != ErrStale {
				t.Error(err)
			}
			return err == nil
		}
	}
	waits := func(t *testing.T, db *DB, k string) (Run, string, Claim) {
		run, c := followed(t, db, k, k+"-b1")
		moved(t, db, asking(k+".a.1", c, "one?"))
		return run, k + ".a.1", c
	}
	answered := func(t *testing.T, db *DB, k string) (Run, string, Claim) {
		run, task, c := waits(t, db, k)
		d := replying(run, task, 1, "1")
		check(t, db.Decide(ctx, d))
		return d.Run, task, c
	}
	return []race{
		{"question/answer of a person", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run, task, c := waits(t, db, k)
			other := mover(t, db, asking(task, c, "two?"))
			reply := decider(t, db, replying(run, task, 1, "1"))
			// The other question always stands afterwards; an answer before it is
			// lost with the former one, and the run says so.
			return func() bool { return other() && must(db.RunRow(ctx, k))(t).Seq == run.Seq }, reply
		}},
		{"going on/answer of a person", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run, task, c := waits(t, db, k)
			on := mover(t, db, goesOn(task, c))
			return func() bool { return on() && must(db.RunRow(ctx, k))(t).Seq == run.Seq }, decider(t, db, replying(run, task, 1, "1"))
		}},
		{"reply/reply", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run, task, _ := waits(t, db, k)
			return decider(t, db, replying(run, task, 1, "1")), decider(t, db, replying(run, task, 1, "2"))
		}},
		{"reply/run cancel", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run, task, _ := waits(t, db, k)
			d := next(run, 1)
			d.Run.Cancelling, d.RequestCancel = true, []string{task}
			return decider(t, db, replying(run, task, 1, "1")), decider(t, db, d)
		}},
		{"hand-off/cancel", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run, task, c := answered(t, db, k)
			d := next(run, 1)
			d.Close = []Close{{TaskID: task, Outcome: parley.OutcomeCancelled}}
			send, end := mover(t, db, sending(task, c, 1)), decider(t, db, d)
			return send, func() bool { return end() && !row(t, db, task).ReplySent }
		}},
		{"hand-off/takeover", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			_, task, c := answered(t, db, k)
			to := bridge(t, db, c.Worker)
			to.Token = "t2"
			take := mover(t, db, Move{Kind: MoveTakeover, TaskID: task, From: c, To: to, AgentTaskID: "at"})
			return mover(t, db, sending(task, c, 1)), func() bool { return take() && !row(t, db, task).ReplySent }
		}},
		{"reply/settle", func(t *testing.T, db *DB, k string) (a, b func() bool) {
			run, task, _ := waits(t, db, k)
			settle := func() bool {
				return must(db.Answer(ctx, answer(task, `1`)))(t) && must(db.RunRow(ctx, k))(t).Seq == run.Seq
			}
			return decider(t, db, replying(run, task, 1, "1")), settle
		}},
	}
}
