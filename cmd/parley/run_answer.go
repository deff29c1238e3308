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
	wait       bool
	timeout    time.Duration
}

func newRunAnswer(a *app) *cobra.Command {
	var f answerFlags
	cmd := &cobra.Command{
		Use:   "answer RUN [STEP]",
		Short: "Answer what an agent waits for",
		Long: `Answer the question of an agent that waits for a person: a step whose phase is
input_required, which parley run show tells with its question. The step need
not be named if only one waits. The answer is text, a JSON value, or both.

An agent that waits for an authorization is told so, or is asked again, by any
answer, such as --text done. Do not type passwords: authorize where the agent
says.`,
		Example: `  parley run answer RUN --text "the blue one"
  parley run answer RUN book --data '{"seat": "12A"}'
  parley run answer RUN book --data @seats.json --wait`,
		Args: need("RUN", "[STEP]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runAnswer(cmd.Context(), args, f)
		},
		ValidArgsFunction: a.completeNames(runIDs),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.text, "text", "", "the answer as text")
	fl.StringVar(&f.data, "data", "", "the answer as a value: JSON, @FILE, or - for standard input")
	fl.BoolVar(&f.wait, "wait", false, "wait for the end and show the steps")
	fl.DurationVar(&f.timeout, "timeout", 0, "longest wait, such as 30s or 5m (with --wait)")
	return cmd
}

func (a *app) runAnswer(ctx context.Context, args []string, f answerFlags) error {
	if err := checkTimeout(f.timeout, f.wait); err != nil {
		return err
	}
	if f.text == "" && f.data == "" {
		return usagef("an answer needs --text or --data")
	}
	req := parley.AnswerRequest{Run: args[0], Reply: parley.Reply{Text: f.text}}
	if len(args) > 1 {
		req.Step = args[1]
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

// nextOf says what to do about a run that goes on: answer, or watch.
func (a *app) nextOf(run parley.Run) {
	for _, step := range run.Steps {
		if step.Question != nil {
			a.next("%s", answerCommand(run.ID, step.ID))
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

// asksFor says in a few words what kind of answer is waited for.
func asksFor(q *parley.Question) string {
	if q.Kind == parley.QuestionAuth {
		return "an authorization"
	}
	return "an answer"
}

// maxAsked bounds what one line shows of a question, in characters.
const maxAsked = 300

// oneLine gives a text on one line, cut after maxAsked characters.
func oneLine(s string) string {
	line := strings.Join(strings.Fields(s), " ")
	if r := []rune(line); len(r) > maxAsked {
		return string(r[:maxAsked]) + "…"
	}
	return line
}

// drawQuestions shows what the agents of a run wait for.
func (a *app) drawQuestions(s *sheet, run parley.Run) {
	for _, step := range run.Steps {
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
