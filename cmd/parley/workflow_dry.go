package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/dryrun"
	"github.com/parley-project/parley/internal/workflow"
)

// dryPatience bounds a whole dry run in wall time.
const dryPatience = 30 * time.Second

// errDryTooLong is the cause of a dry run that was given up.
const errDryTooLong = waitError("the dry run took longer than 30s of real time")

// dryFlags are those of workflow run --dry.
type dryFlags struct {
	dry, events             bool
	agents, input, at, test string
	sets                    []string
	seed                    uint64
}

func newWorkflowRun(a *app) *cobra.Command {
	var f dryFlags
	cmd := &cobra.Command{
		Use:   "run --dry FILE",
		Short: "Run a workflow against scripted agents, without a server",
		Long: `Run a workflow document without a server: a script plays the agents, and time is
virtual, so that a wait of 30 days takes none. Every step is shown as it happens,
with how long the run has gone on, on standard error, and the run as it ended is
printed. The same workflow, script and seed give the same output, byte for byte.

The script says what each agent answers, who answers approvals, which events come
and what is to come of the run; it may hold several tests. The exit code is 1 if an expectation does not hold or a test
fails, 2 if a file is invalid or the script does not say what a called agent
answers; without expectations it tells how the run ended.`,
		Example: `  parley workflow run --dry order.yaml --agents order.test.yaml
  parley workflow run --dry order.yaml --agents agents.yaml --set amount=12 --events
  parley workflow run --dry order.yaml --agents order.test.yaml --test refused -o json
  parley schema dry-run > dry-run.schema.json`,
		Args: need("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !f.dry {
				return usagef("workflow run needs --dry").
					withHint("to run it on a server: parley workflow apply %s, then parley run start WORKFLOW --wait", shellWord(args[0]))
			}
			return a.workflowDry(cmd.Context(), args[0], cmd.Flags().Changed("seed"), f)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.dry, "dry", false, "against a script, in virtual time, without a server")
	fl.StringVar(&f.agents, "agents", "", "script: what the agents answer, and what is expected")
	fl.StringVar(&f.input, "input", "", "input: JSON, @FILE, or - for standard input; instead of the script's")
	fl.StringArrayVar(&f.sets, "set", nil, "member of the input: name=value, also a.b=value (JSON if it reads as JSON, else text)")
	fl.StringVar(&f.test, "test", "", "play only the test of this name")
	fl.BoolVar(&f.events, "events", false, "show every event, and give them with the run")
	fl.Uint64Var(&f.seed, "seed", 1, "what jitter is drawn from; instead of the script's")
	fl.StringVar(&f.at, "at", "", "when the run starts, such as 2026-01-02T15:04:05Z; instead of the script's")
	neverEmpty(cmd, "agents", "input", "test", "at")
	return cmd
}

// dryRunID is the id of every dry run.
const dryRunID = "dry"

// dryTest is what came of one test.
type dryTest struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	// Failures are the expectations that do not hold, Error why it could not be
	// played.
	Failures []string      `json:"failures"`
	Error    string        `json:"error,omitempty"`
	Calls    []dryrun.Call `json:"calls"`
	// Emitted are the events that the run has published.
	Emitted []parley.Signal `json:"emitted,omitempty"`
	Run     *parley.Run     `json:"run,omitempty"`
	Events  []parley.Event  `json:"events,omitempty"`
	// Refused is why there is no run, as was expected.
	Refused *parley.Error `json:"refused,omitempty"`

	err error
}

// dryRun is a run with its events.
type dryRun struct {
	parley.Run
	Events []parley.Event `json:"events"`
}

func (a *app) workflowDry(ctx context.Context, file string, seeded bool, f dryFlags) error {
	def, script, err := a.dryFiles(file, f)
	if err != nil {
		return err
	}
	tests := script.Tests
	if f.test != "" {
		tests = slices.DeleteFunc(slices.Clone(tests), func(t dryrun.Test) bool { return t.Name != f.test })
		if len(tests) == 0 {
			return a.noSuchTest(f.test, script.Tests)
		}
	}
	if err := a.dryOverrides(tests, script, seeded, f); err != nil {
		return err
	}
	if def.Concurrency != nil {
		a.note("concurrency has no effect in a dry run: its runs are played one by one")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dryPatience, errDryTooLong)
	defer cancel()
	results := make([]dryTest, len(tests))
	for i, t := range tests {
		if !script.Single {
			a.note("test %s", t.Name)
		}
		results[i] = a.dryPlay(ctx, def, t, f)
	}
	if script.Single {
		return a.showDryRun(results[0], tests[0].Expect != nil, f)
	}
	return a.showDryTests(results)
}

func (a *app) noSuchTest(name string, tests []dryrun.Test) error {
	var names []string
	for _, t := range tests {
		if t.Name != "" {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return usagef("--test %s: the script names no tests", name)
	}
	return usagef("--test %s: the tests are %s", name, strings.Join(names, ", ")).withHint("%s", didYouMean(name, names))
}

// dryFiles reads the workflow and the script.
func (a *app) dryFiles(file string, f dryFlags) (*workflow.Definition, *dryrun.Script, error) {
	if err := checkFiles([]string{file, f.agents, f.input}); err != nil {
		return nil, nil, err
	}
	name, source, err := a.readDocument(file)
	if err != nil {
		return nil, nil, err
	}
	def, problems := workflow.Parse(workflow.ParseOptions{File: name}, source)
	for _, p := range problems {
		fmt.Fprintln(a.stderr, problemLine(p))
	}
	if def == nil {
		return nil, nil, invalidf("%s cannot be run: %s", name, plural(errorCount(problems), "error"))
	}
	if f.agents == "" {
		return def, dryrun.Empty(), nil
	}
	name, source, err = a.readDocument(f.agents)
	if err != nil {
		return nil, nil, err
	}
	script, problems := dryrun.Parse(name, source)
	for _, p := range problems {
		if member, err := strconv.Unquote(strings.TrimPrefix(p.Text, "unknown member ")); err == nil {
			p.Suggestion = didYouMean(member, dryrun.Members(p.Path))
		}
		fmt.Fprintln(a.stderr, problemLine(p))
	}
	if script == nil {
		return nil, nil, invalidf("%s cannot be played: %s", name, plural(errorCount(problems), "error"))
	}
	return def, script, nil
}

// dryOverrides puts what the command line says into the tests.
func (a *app) dryOverrides(tests []dryrun.Test, script *dryrun.Script, seeded bool, f dryFlags) error {
	input, err := a.readInput(f.input, orMembers)
	if err != nil {
		return err
	}
	if (input != nil || f.sets != nil) && !script.Single && len(tests) > 1 {
		return usagef("the script has several tests, each with its input").withHint("choose one with --test")
	}
	for i := range tests {
		t := &tests[i]
		if input != nil || f.sets != nil {
			base := t.Input
			if input != nil {
				base = input
			}
			if t.Input, err = buildInput(base, f.sets); err != nil {
				return err
			}
		}
		if seeded {
			t.Seed = f.seed
		}
		if f.at == "" {
			continue
		}
		if t.At, err = time.Parse(time.RFC3339Nano, f.at); err != nil {
			return usagef("--at %s: write it as 2026-01-02T15:04:05Z", f.at)
		}
		t.At = t.At.UTC().Truncate(time.Microsecond)
	}
	return nil
}

// dryPlay plays one test and shows what happens in it.
func (a *app) dryPlay(ctx context.Context, def *workflow.Definition, t dryrun.Test, f dryFlags) dryTest {
	board := newBoard(parley.Run{ID: dryRunID, CreatedAt: t.At, Status: parley.RunRunning})
	tell := func(e parley.Event) {
		since := dryrun.Elapsed(e.At.Sub(t.At))
		if f.events {
			fmt.Fprintln(a.stderr, clean(strings.TrimSpace(fmt.Sprintf("%4d  %-8s  %-16s  %-16s  %s", e.Seq, since, e.Type, orDash(e.Step), eventData(e)))))
			return
		}
		if n, ok := board.apply(e); ok {
			a.note("%s", n.after(since))
		}
	}
	r, err := dryrun.Run(ctx, dryrun.Config{Definition: def, Test: t, Run: dryRunID, Limits: dryrun.DefaultLimits(), Event: tell})
	if err != nil {
		err = a.dryFault(err, f)
		return dryTest{Name: t.Name, Failures: []string{}, Error: classify(err).text, Calls: []dryrun.Call{}, err: err}
	}
	out := dryTest{Name: t.Name, Passed: len(r.Failures) == 0, Failures: r.Failures, Calls: r.Calls, Emitted: r.Emitted, Run: &r.Run}
	if r.Refused != nil {
		a.note("the start was refused: %s", r.Refused.Message)
		out.Run, out.Refused = nil, r.Refused
	}
	if t.Expect == nil {
		out.Passed = r.Run.Status == parley.RunCompleted
	}
	if out.Failures == nil {
		out.Failures = []string{}
	}
	if out.Calls == nil {
		out.Calls = []dryrun.Call{}
	}
	if f.events {
		out.Events = r.Events
	}
	return out
}

// dryFault says what to do about a run that could not be played.
func (a *app) dryFault(err error, f dryFlags) error {
	if errors.Is(err, errDryTooLong) {
		return &failure{exit: exitFailed, code: parley.CodeLimit, text: err.Error()}
	}
	x := *classify(err)
	if x.code == parley.CodeUnknownAgent {
		x.hint = "say in the script what it answers, or write unknown_agents: echo in it"
		if f.agents == "" {
			x.hint = "give a script that plays the agents: --agents FILE"
		}
	}
	return &x
}

// after is plain with the time since the run's start.
func (n news) after(since string) string {
	if n.id == dryRunID {
		n.id = "run"
	}
	parts := []string{"+" + since, n.id, n.status}
	for _, p := range []string{n.agent, n.took, n.note} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return clean(strings.Join(parts, " "))
}

// showDryRun prints one run; the error stands for how it ended, or for what was
// expected of it.
func (a *app) showDryRun(r dryTest, expected bool, f dryFlags) error {
	if r.err != nil {
		return r.err
	}
	if r.Run == nil {
		if err := a.show(r, func(s *sheet) { s.line("refused  " + clean(r.Refused.Message)) }); err != nil {
			return err
		}
		return a.dryVerdict(r)
	}
	if f.events && a.flags.output == "jsonl" {
		for _, e := range r.Events {
			if err := a.data(e); err != nil {
				return err
			}
		}
	}
	var whole any = r.Run
	if f.events && a.flags.output != "jsonl" {
		whole = dryRun{*r.Run, r.Events}
	}
	if err := a.show(whole, func(s *sheet) { a.drawRun(s, *r.Run, runParts{steps: true, values: true}) }); err != nil {
		return err
	}
	if !expected {
		if f, ok := errors.AsType[*failure](outcome(*r.Run)); ok {
			return f.withHint("")
		}
		return nil
	}
	return a.dryVerdict(r)
}

// dryVerdict says which expectations of one run do not hold.
func (a *app) dryVerdict(r dryTest) error {
	a.dryFailures("", r.Failures)
	if n := len(r.Failures); n > 0 {
		return &failure{exit: exitFailed, code: codeExpectation, text: plural(n, "expectation") + " did not hold"}
	}
	a.note("all expectations hold")
	return nil
}

// codeExpectation is the code of a dry run that went another way than expected.
const codeExpectation = parley.Code("expectation")

func (a *app) dryFailures(test string, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(a.stderr, clean(strings.TrimSpace(test+" "+line)))
	}
}

// showDryTests prints what came of several tests.
func (a *app) showDryTests(results []dryTest) error {
	if err := showList(a, listing[dryTest]{whole: results, items: results, columns: dryColumns()}); err != nil {
		return err
	}
	failed := 0
	var broken error
	for _, r := range results {
		lines := r.Failures
		switch {
		case r.err != nil:
			lines = []string{r.Error}
			if broken == nil {
				broken = r.err
			}
		case !r.Passed && len(lines) == 0:
			lines = []string{"status: want COMPLETED, got " + string(r.Run.Status) + " (" + errorText(r.Run.Error) + ")"}
		}
		if !r.Passed {
			failed++
			a.dryFailures(r.Name+":", lines)
		}
	}
	switch {
	case broken != nil:
		x := *classify(broken)
		x.text = fmt.Sprintf("%d of %s failed; one could not be played: %s", failed, plural(len(results), "test"), x.text)
		return &x
	case failed > 0:
		return &failure{exit: exitFailed, code: codeExpectation, text: fmt.Sprintf("%d of %s failed", failed, plural(len(results), "test"))}
	}
	a.note("%s passed", plural(len(results), "test"))
	return nil
}

func dryColumns() []column[dryTest] {
	return []column[dryTest]{
		{head: "TEST", cell: plain(func(r dryTest) string { return r.Name })},
		{head: "RESULT", fixed: true, cell: func(r dryTest) cell {
			if r.Passed {
				return cell{"passed", styleGood}
			}
			return cell{"failed", styleBad}
		}},
		{head: "RUN", fixed: true, cell: plain(func(r dryTest) string {
			if r.Run == nil {
				return ""
			}
			return string(r.Run.Status)
		})},
		{head: "TOOK", fixed: true, cell: plain(func(r dryTest) string {
			if r.Run == nil || r.Run.EndedAt == nil {
				return ""
			}
			return dryrun.Elapsed(r.Run.EndedAt.Sub(r.Run.CreatedAt))
		})},
		{head: "CALLS", fixed: true, cell: plain(func(r dryTest) string { return strconv.Itoa(len(r.Calls)) })},
		{head: "FAILURES", fixed: true, cell: plain(func(r dryTest) string {
			if r.err != nil {
				return "1"
			}
			return strconv.Itoa(len(r.Failures))
		})},
	}
}
