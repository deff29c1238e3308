package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/executor"
)

const spends = `
name: talk
steps:
  - id: ask
    timeout: 20s
    approval: {title: "Pay it?", to: [finance], form: {type: object, properties: {n: {type: integer}}}, min: 2, escalate: [{after: 10s, to: [cfo]}], on_timeout: reject}
`

func votes(x *executor.Executor, t *testing.T, req parley.AnswerRequest) error {
	_, err := x.AnswerStep(t.Context(), req)
	return err
}

func vote(run, choice, by string, roles ...string) parley.AnswerRequest {
	return parley.AnswerRequest{Run: run, Choice: choice, Roles: roles, Reply: parley.Reply{By: by, Data: json.RawMessage(`{"n": 7}`)}}
}

// inbox gives the open approvals for somebody, as "step: to, answers".
func (r *rig) inbox(names ...string) (list []string) {
	r.t.Helper()
	rows, _, err := r.db.Approvals(r.t.Context(), parley.ApprovalQuery{For: names})
	check(r.t, err)
	for _, a := range rows {
		list = append(list, fmt.Sprintf("%s %s %s: %s, %d", a.Workflow, a.Run, a.Step, strings.Join(a.Asked.To, " "), len(a.Asked.Answers)))
	}
	return list
}

// TestC9_ApprovalsAreDurable: asked, answered and escalated, by whichever
// executor there is; the list of those that wait says the same.
func TestC9_ApprovalsAreDurable(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(spends)
		run := r.start()
		wantEqual(t, r.inbox("finance"), []string{"talk " + run + " ask: finance, 0"})
		step := r.step(run, "ask")
		if step.Phase != parley.PhaseWaiting || step.Approval == nil || step.Approval.Title != "Pay it?" || step.Approval.Deadline == nil || step.Approval.EscalateAt == nil {
			t.Fatalf("step %+v", step)
		}
		wantCode(t, r.answer(run, "", "yes"), parley.CodeInvalid, "one of approve, reject")
		wantCode(t, r.answer(run, "ask", "yes"), parley.CodeInvalid, `needs a choice, one of approve, reject: as choice, as the text alone, or as data, "approve" or {"choice": "approve", "comment": …}`)
		wantCode(t, votes(r.x, t, vote(run, "approve", "ann")), parley.CodeForbidden, "finance")
		wantCode(t, votes(r.x, t, vote(run, "perhaps", "finance")), parley.CodeInvalid, "perhaps")
		bad := vote(run, "approve", "ann", "finance")
		bad.Reply.Data = json.RawMessage(`[]`)
		wantCode(t, votes(r.x, t, bad), parley.CodeInvalid, "form")
		bad.Reply.Data = json.RawMessage(`[`)
		wantCode(t, votes(r.x, t, bad), parley.CodeInvalid, "JSON")
		bad.Reply.Text = strings.Repeat("x", 1<<20)
		wantCode(t, votes(r.x, t, bad), parley.CodeLimit, "1048576")
		bad.Step = "nobody"
		bad.Reply = parley.Reply{By: "ann"}
		wantCode(t, votes(r.x, t, bad), parley.CodeNotFound, "nobody")
		wantCode(t, votes(r.x, t, vote("run-9", "approve", "ann")), parley.CodeNotFound, "run-9")

		check(t, votes(r.x, t, vote(run, "approve", "ann", "finance")))
		check(t, votes(r.x, t, vote(run, "approve", "ann", "finance")))
		wantEqual(t, r.inbox("finance"), []string{"talk " + run + " ask: finance, 1"})
		wantEqual(t, r.inbox("cfo"), []string(nil))
		r.stopFirst()
		time.Sleep(12 * time.Second)
		r.another(func(*executor.Config) {}, func(x *executor.Executor) {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			wantEqual(t, r.inbox("cfo"), []string{"talk " + run + " ask: cfo finance, 1"})
			req := vote(run, "approve", "cfo")
			req.Reply.Text = "fine"
			check(t, votes(x, t, req))
			wantCode(t, votes(x, t, vote(run, "reject", "finance")), parley.CodeConflict, "COMPLETED")
		})
		wantEqual(t, r.inbox(), []string(nil))
		var out struct{ Decision, By, Comment string }
		check(t, json.Unmarshal(r.step(run, "ask").Output, &out))
		if out.Decision != "approve" || out.By != "cfo" || out.Comment != "fine" {
			t.Errorf("output %+v", out)
		}

		r.another(func(*executor.Config) {}, func(x *executor.Executor) {
			late, _, err := x.Start(t.Context(), parley.StartRequest{Workflow: "talk"})
			check(t, err)
			time.Sleep(22 * time.Second)
			synctest.Wait()
			v, err := x.Get(t.Context(), late.ID)
			check(t, err)
			if v.Status != parley.RunFailed || v.Error.Code != parley.CodeApprovalRejected || !strings.Contains(v.Error.Message, "timeout") {
				t.Errorf("run %s: %v", v.Status, v.Error)
			}
			wantEqual(t, r.inbox(), []string(nil))
		})
	})
}

// TestC9_ChoicesInTextAndData: text and data answer an approval where they say
// nothing but a choice, and what belongs to it; all else is refused.
func TestC9_ChoicesInTextAndData(t *testing.T) {
	const needs = "needs a choice"
	for name, tt := range map[string]struct {
		step, text, data string
		// want is the output without what varies, else words of the refusal.
		want, refused string
	}{
		"text":                       {text: "approve", want: `approve "" null`},
		"text with the form":         {text: "approve", data: `{"n": 7}`, want: `approve "" {"n": 7}`},
		"text of another choice":     {text: "hold", want: `hold "" null`},
		"string":                     {data: `"approve"`, want: `approve "" null`},
		"choice":                     {data: `{"choice": "approve"}`, want: `approve "" null`},
		"decision, comment, form":    {data: `{"n": 7, "decision": "approve", "comment": "as \"agreed\"", "x": [1.10]}`, want: `approve "as \"agreed\"" {"n":7,"x":[1.10]}`},
		"null is nothing":            {data: `{"choice": "approve", "comment": null}`, want: `approve "" null`},
		"with the step":              {step: "ask", text: "approve", want: `approve "" null`},
		"no choice":                  {text: "Approve", refused: needs},
		"a choice with more":         {text: "approve, please", refused: needs},
		"string that is none":        {data: `"yes"`, refused: needs},
		"member that is none":        {data: `{"choice": "yes"}`, refused: needs},
		"member that is no string":   {data: `{"choice": true}`, refused: needs},
		"comment that is no string":  {data: `{"choice": "approve", "comment": 1}`, refused: needs},
		"the form alone":             {data: `{"n": 7}`, refused: needs},
		"a list":                     {data: `["approve"]`, refused: needs},
		"two members":                {data: `{"choice": "approve", "decision": "approve"}`, refused: needs},
		"a member twice":             {data: `{"choice": "approve", "choice": "reject"}`, refused: needs},
		"text and string":            {text: "approve", data: `"reject"`, refused: needs},
		"text and member":            {text: "approve", data: `{"decision": "reject"}`, refused: needs},
		"a text that data overrides": {text: "no", data: `"approve"`, refused: needs},
		"form that does not fit":     {data: `{"choice": "approve", "n": "7"}`, refused: "does not fit the form"},
		"data that does not fit":     {text: "approve", data: `{"n": "7"}`, refused: "does not fit the form"},
		"null":                       {data: `null`, refused: needs},
		"no JSON":                    {data: `{"choice": "approve"`, refused: "no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(r *rig) {
				t := r.t
				r.apply(`
name: talk
steps:
  - {id: ask, approval: {title: "Pay it?", to: [finance], choices: [approve, hold, reject], form: {properties: {n: {type: integer}}}}}
`)
				run := r.start()
				req := parley.AnswerRequest{Run: run, Step: tt.step, Roles: []string{"finance"}, Reply: parley.Reply{Text: tt.text, By: "ann"}}
				if tt.data != "" {
					req.Reply.Data = json.RawMessage(tt.data)
				}
				if tt.refused != "" {
					wantCode(t, votes(r.x, t, req), parley.CodeInvalid, tt.refused)
					wantEqual(t, r.inbox("finance"), []string{"talk " + run + " ask: finance, 0"})
					return
				}
				foreign := req
				foreign.Roles = nil
				wantCode(t, votes(r.x, t, foreign), parley.CodeForbidden, "finance")
				check(t, votes(r.x, t, req))
				var out struct {
					Decision, By, Comment string
					Data                  json.RawMessage
				}
				check(t, json.Unmarshal(r.step(run, "ask").Output, &out))
				wantEqual(t, fmt.Sprintf("%s %q %s", out.Decision, out.Comment, out.Data), tt.want)
				wantEqual(t, out.By, "ann")
				wantCode(t, votes(r.x, t, req), parley.CodeConflict, "COMPLETED")
			})
		})
	}
}

// TestC9_TextOfSeveralApprovals: which one is meant has to be said.
func TestC9_TextOfSeveralApprovals(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply("name: talk\nsteps: [{id: p, parallel: [{id: a, approval: {title: t}}, {id: b, approval: {title: t}}]}]")
		run := r.start()
		wantCode(t, r.answer(run, "", "approve"), parley.CodeConflict, "name one of p/a, p/b")
		check(t, r.answer(run, "p/b", "reject"))
		if v := r.step(run, "p/b"); v.Status != parley.StepFailed || v.Error.Code != parley.CodeApprovalRejected {
			t.Errorf("step %+v", v)
		}
	})
}

// TestC9_AnswersAtTheSameTimeDecideOnce: whoever takes them.
func TestC9_AnswersAtTheSameTimeDecideOnce(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		r.apply(strings.Replace(spends, "to: [finance], ", "", 1))
		run := r.start()
		r.another(func(*executor.Config) {}, func(one *executor.Executor) {
			r.another(func(c *executor.Config) { c.Guest = true }, func(guest *executor.Executor) {
				var g sync.WaitGroup
				taken := make([]error, 6)
				for i := range taken {
					g.Go(func() {
						taken[i] = votes([]*executor.Executor{one, guest, r.x}[i%3], t, vote(run, "approve", fmt.Sprint("p", i/2)))
					})
				}
				g.Wait()
				ok := 0
				for _, err := range taken {
					if err == nil {
						ok++
					} else {
						wantCode(t, err, parley.CodeConflict, "")
					}
				}
				people, decided := map[string]bool{}, 0
				for _, e := range r.events(run) {
					var data struct{ By string }
					check(t, json.Unmarshal(e.Data, &data))
					switch e.Type {
					case parley.EventStepAnswered:
						people[data.By] = true
						ok--
					case parley.EventStepCompleted:
						decided++
					}
				}
				if ok != 0 || len(people) != 2 || decided != 1 {
					t.Errorf("%d more were taken than recorded, %d people, decided %d times", ok, len(people), decided)
				}
			})
		})
	})
}

// TestLimits_OpenApprovals: one more than may wait fails, and the rest go on.
func TestLimits_OpenApprovals(t *testing.T) {
	onStore(t, func(r *rig) {
		t := r.t
		var steps []string
		for i := range 101 {
			steps = append(steps, fmt.Sprintf("{id: a%d, approval: {title: t}, on_error: continue}", i))
		}
		r.apply("name: talk\nsteps: [{id: p, parallel: [" + strings.Join(steps, ", ") + "]}]")
		run := r.start()
		_, total, err := r.db.Approvals(t.Context(), parley.ApprovalQuery{Run: run})
		check(t, err)
		v := r.step(run, "p/a100")
		if total != 100 || v.Status != parley.StepFailed || v.Error.Code != parley.CodeLimit || !strings.Contains(v.Error.Message, "open approvals") {
			t.Errorf("%d wait, step %+v", total, v)
		}
	})
}
