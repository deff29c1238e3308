package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
)

// answerFlags are those of run answer.
type answerFlags struct {
	text, data string
	// choice and comment answer an approval, as somebody with roles.
	choice, comment, as string
	roles               []string
	wait                bool
	timeout             time.Duration
}

func newRunAnswer(a *app) *cobra.Command {
	var f answerFlags
	cmd := &cobra.Command{
		Use:   "answer RUN [STEP]",
		Short: "Answer what an agent waits for, or an approval",
		Long: `Answer the question of an agent that waits for a person: a step whose phase is
input_required, which parley run show tells with its question. The step need
not be named if only one waits. The answer is text, a JSON value, or both.

An approval is answered with --choice: one of those that parley approval list
shows. A --text that is one of them and nothing else says the same, and so does
--data that is one, or an object with the member choice or decision; comment may
stand beside it, and what the approval's form asks for. Say with --as who you
are, and with --role what you are besides, where not everybody may answer.

An agent that waits for an authorization is told so, or is asked again, by any
answer, such as --text done. Do not type passwords: authorize where the agent
says.`,
		Example: `  parley run answer RUN --text "the blue one"
  parley run answer RUN book --data '{"seat": "12A"}'
  parley run answer RUN book --data @seats.json --wait
  parley run answer RUN ask --choice approve --as ann --role finance --comment "as agreed"
  parley run answer RUN ask --data '{"choice": "approve", "comment": "as agreed", "cost_centre": "12"}' --as finance`,
		Args: need("RUN", "[STEP]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runAnswer(cmd.Context(), args, f)
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.text, "text", "", "the answer as text")
	fl.StringVar(&f.data, "data", "", "the answer as a value: JSON, @FILE, or - for standard input")
	fl.StringVar(&f.choice, "choice", "", "answer an approval: one of its choices, such as approve")
	fl.StringVar(&f.comment, "comment", "", "why (with --choice)")
	fl.StringVar(&f.as, "as", "", "who answers")
	fl.StringArrayVar(&f.roles, "role", nil, "what whoever answers an approval is besides (may be given several times)")
	fl.BoolVar(&f.wait, "wait", false, "wait for the end and show the steps")
	fl.DurationVar(&f.timeout, "timeout", 0, "longest wait, such as 30s or 5m; default: no bound (with --wait)")
	neverEmpty(cmd, "data")
	return cmd
}

func (a *app) runAnswer(ctx context.Context, args []string, f answerFlags) error {
	if err := checkTimeout(f.timeout, f.wait); err != nil {
		return err
	}
	switch {
	case f.choice == "" && f.comment != "":
		return usagef("--comment goes with --choice")
	case f.choice != "" && f.text != "":
		return usagef("an approval is answered with --choice; give --comment instead of --text")
	case f.choice == "" && f.text == "" && f.data == "":
		return usagef("an answer needs --text or --data, or --choice for an approval")
	}
	req := parley.AnswerRequest{Run: args[0], Choice: f.choice, Roles: f.roles, Reply: parley.Reply{Text: f.text + f.comment, By: f.as}}
	if len(args) > 1 {
		if req.Step = args[1]; req.Step == "" { // such as a variable that is not set: another step would be answered than was meant
			return usagef("STEP is empty: name the step, or leave it out if only one waits")
		}
	}
	var err error
	if req.Reply.Data, err = a.readValue("--data", f.data); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	run, err := c.Answer(ctx, req)
	if err != nil {
		return err
	}
	if f.wait {
		return a.finish(ctx, c, run, f.timeout)
	}
	if err := a.show(run, func(s *sheet) { a.drawRun(s, run, runParts{steps: true}) }); err != nil {
		return err
	}
	a.nextOf(run)
	return nil
}

// nextOf says what to do about a run: answer, or watch; look at it when it has ended.
func (a *app) nextOf(run parley.Run) {
	if run.Status.Terminal() {
		a.next("parley run show %s", run.ID)
		return
	}
	for _, step := range run.Steps {
		if step.Question != nil {
			a.next("%s", answerCommand(run.ID, step.ID))
			return
		}
		if step.Approval != nil {
			a.next("%s", approveCommand(run.ID, step.ID, step.Approval))
			return
		}
	}
	a.next("parley run watch %s", run.ID)
}

// answerCommand is what to type to answer a step.
func answerCommand(run, step string) string {
	return fmt.Sprintf("parley run answer %s %s --text ANSWER", run, shellWord(step))
}

// shellWord quotes a word if a shell would read more into it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./@:+,%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// shellWords is [shellWord] for several.
func shellWords(list []string) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = shellWord(s)
	}
	return strings.Join(words, " ")
}

// asksFor says in a few words what kind of answer is waited for.
func asksFor(q *parley.Question) string {
	if q.Kind == parley.QuestionAuth {
		return "an authorization"
	}
	return "an answer"
}

// maxAsked bounds what one line shows of what an agent says, in characters.
const maxAsked = 300

// oneLine gives a text on one line, cut after maxAsked characters.
func oneLine(s string) string {
	line := strings.Join(strings.Fields(s), " ")
	if r := []rune(line); len(r) > maxAsked {
		return string(r[:maxAsked]) + "…"
	}
	return line
}

// approveCommand is what to type to answer an approval, with data if its form wants some:
// who rejects may leave that out.
func approveCommand(run, step string, q *parley.Approval) string {
	who := "ME"
	if len(q.To) > 0 {
		who = shellWord(q.To[0])
	}
	choice := "CHOICE"
	if len(q.Choices) > 0 {
		choice = shellWord(q.Choices[0])
	}
	data := ""
	if choice != "reject" {
		data = dataFlag(q.Form)
	}
	return fmt.Sprintf("parley run answer %s %s --choice %s --as %s%s", run, shellWord(step), choice, who, data)
}

// drawWaits shows what the steps of a run wait for that is no agent.
func (a *app) drawWaits(s *sheet, step parley.Step, run string) {
	switch {
	case step.Event != nil:
		text := "event " + step.Event.Name
		if step.Event.Key != "" {
			text += " with key " + step.Event.Key
		}
		s.line("")
		s.line(s.ink(styleWarn, clean(fmt.Sprintf("Step %s waits for %s", step.ID, text))))
	case step.Child != nil && step.Status == parley.StepRunning:
		s.line("")
		s.line(s.ink(styleWarn, clean(fmt.Sprintf("Step %s waits for %s", step.ID, childText(step.Child)))))
		if step.Child.Run != "" {
			s.line(s.ink(styleDim, clean("parley run show "+step.Child.Run)))
		}
	case step.Approval != nil:
		q := step.Approval
		s.line("")
		s.line(s.ink(styleWarn, clean(fmt.Sprintf("Step %s waits for an approval by %s: %s", step.ID, approvers(q), strings.Join(q.Choices, ", ")))))
		s.line(cleanLines(q.Title))
		for _, given := range q.Answers {
			s.line(clean(fmt.Sprintf("%s: %s %s", given.By, given.Choice, oneLine(given.Comment))))
		}
		if len(q.Form) > 0 {
			s.block("Form", q.Form)
		}
		s.line(s.ink(styleDim, clean(approveCommand(run, step.ID, q))))
	}
}

// childText names the run that a step has started.
func childText(c *parley.ChildRun) string {
	name := c.Workflow
	if c.Version != "" {
		name += "@" + c.Version
	}
	if c.Run == "" {
		return "a run of " + name + " to begin"
	}
	return "run " + c.Run + " of " + name
}

// approvers says who may answer.
func approvers(q *parley.Approval) string {
	text := "anybody"
	if len(q.To) > 0 {
		text = strings.Join(q.To, ", ")
	}
	if q.Min > 1 {
		text += fmt.Sprintf(" (%d of them)", q.Min)
	}
	return text
}

// drawQuestions shows what the agents of a run wait for.
func (a *app) drawQuestions(s *sheet, run parley.Run) {
	for _, step := range run.Steps {
		a.drawWaits(s, step, run.ID)
		q := step.Question
		if q == nil {
			continue
		}
		s.line("")
		s.line(s.ink(styleWarn, clean(fmt.Sprintf("Step %s waits for %s:", step.ID, asksFor(q)))))
		switch {
		case q.Text != "":
			s.line(cleanLines(q.Text))
		case len(q.Parts) > 0:
			s.line(cleanLines(string(indent(q.Parts))))
		}
		if q.Note != "" {
			s.line(s.ink(styleBad, clean(q.Note)))
		}
		s.line(s.ink(styleDim, clean(answerCommand(run.ID, step.ID))))
	}
}
