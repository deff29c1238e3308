package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/logging"
	"github.com/parley-project/parley/internal/server"
)

// How a check went: all is well, something is worth knowing, or something keeps
// Parley from working.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

// checksAtOnce bounds the checks that are under way.
const checksAtOnce = 8

// finding is what one check found, and what to do about it.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Advice string `json:"advice"`
}

// fine, odd and broken make findings; broken ones make the command fail.
func fine(check, found string) finding           { return finding{check, checkOK, found, ""} }
func odd(check, found, advice string) finding    { return finding{check, checkWarn, found, advice} }
func broken(check, found, advice string) finding { return finding{check, checkFail, found, advice} }

// examination is one look at something; it may make several findings.
type examination func(context.Context) []finding

// doctor is one examination of a set-up.
type doctor struct {
	a       *app
	timeout time.Duration
	// bare: no file of settings was named.
	bare     bool
	loaded   *config.Loaded
	specs    []parley.AgentSpec
	cfg      server.Config
	redactor *logging.Redactor

	mu sync.Mutex // protects skipped
	// skipped says what was not looked at, and why.
	skipped []string
}

// newDoctorCommand makes `parley doctor`.
func newDoctorCommand(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check a set-up: configuration, data folder, database, bus, agents, address",
		Long: `Check whether a set-up is sound, and say what to do where it is not. The settings
are those that parley serve would take: file, variables, flags. Each check is a
line: ok, warn or fail, what was found, and after the arrow what to do.

Nothing is changed, and no agent is given work: agents are asked for their card,
and where that is silent about a task that does not exist. Without --config what
is here is checked: the data folder of parley dev, and the server that the other
commands would talk to. What was not checked is named at the end.

The exit code is 1 if a check has failed; warnings alone are 0.`,
		Example: `  parley doctor --config parley.yaml
  parley doctor
  parley doctor --config parley.yaml -o json`,
		Args: need(),
	}
	f := addSettings(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long each check may take")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return usagef("--timeout %s: it must be more than nothing, such as 5s", timeout)
		}
		d := &doctor{a: a, timeout: timeout, bare: f.path(a) == "", redactor: logging.NewRedactor()}
		return d.examine(cmd.Context(), f)
	}
	return cmd
}

// examine checks everything, and tells it.
func (d *doctor) examine(ctx context.Context, f *settingFlags) error {
	found := d.configuration(f)
	if d.loaded != nil {
		all, done := d.examinations()
		found = append(found, d.run(ctx, all)...)
		if err := done(); err != nil {
			return err
		}
	} else {
		d.skip("everything else", "without a configuration nobody knows where it is")
	}
	for i := range found {
		found[i].Found = d.redactor.String(found[i].Found)
		found[i].Advice = d.redactor.String(found[i].Advice)
	}
	return d.tell(found)
}

// examinations are all checks in the order of their findings. What done frees, they
// use.
func (d *doctor) examinations() (all []examination, done func() error) {
	done = func() error { return nil }
	all = []examination{d.dataFolder, d.openFiles, d.database, d.bus, d.workflows, d.traces}
	where := d.address
	if d.bare {
		where = d.runningServer
	}
	all = append(all, where)
	if len(d.specs) == 0 {
		return all, done
	}
	looker, err := server.NewLooker(d.cfg)
	if err != nil {
		d.skip("agents", classify(err).text)
		return all, done
	}
	for _, spec := range d.specs {
		all = append(all, func(ctx context.Context) []finding { return []finding{lookAtAgent(ctx, looker, spec)} })
	}
	return all, looker.Close
}

// run makes all examinations, each with its own time, several at a time, and gives
// the findings in the order of the examinations.
func (d *doctor) run(ctx context.Context, all []examination) []finding {
	found := make([][]finding, len(all))
	slots := make(chan struct{}, checksAtOnce)
	var running sync.WaitGroup
	for i, look := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			found[i] = d.within(ctx, look)
		})
	}
	running.Wait()
	var out []finding
	for _, list := range found {
		out = append(out, list...)
	}
	return out
}

// within makes one examination, and says so where it failed for want of time.
func (d *doctor) within(ctx context.Context, look examination) []finding {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	found := look(ctx)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return found
	}
	for i := range found {
		if found[i].Status == checkFail {
			found[i].Found += fmt.Sprintf(" (there was no more time than %s)", d.timeout)
		}
	}
	return found
}

// skip notes what was not looked at.
func (d *doctor) skip(what, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.skipped = append(d.skipped, what+": "+why)
}

// tell writes the findings, and fails if one of them is a failure.
func (d *doctor) tell(found []finding) error {
	if err := d.write(found); err != nil {
		return err
	}
	slices.Sort(d.skipped) // several at a time have added to it
	for _, text := range d.skipped {
		d.a.note("not checked: %s", d.redactor.String(text))
	}
	failed := 0
	for _, f := range found {
		if f.Status == checkFail {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return &failure{exit: exitFailed, code: "unsound", text: fmt.Sprintf("%d of %s failed", failed, plural(len(found), "check"))}
}

func (d *doctor) write(found []finding) error {
	switch {
	case d.a.human():
		drawFindings(d.a.newSheet(), found)
		return nil
	case d.a.flags.output == "jsonl":
		for _, f := range found {
			if err := d.a.data(f); err != nil {
				return err
			}
		}
		return nil
	}
	return d.a.data(found)
}

// drawFindings writes a line for each, which is never cut: the advice is what
// matters, and it stands at the end.
func drawFindings(s *sheet, found []finding) {
	widest := 0
	for _, f := range found {
		widest = max(widest, width(clean(f.Check)))
	}
	for _, f := range found {
		ink := styleGood
		switch f.Status {
		case checkWarn:
			ink = styleWarn
		case checkFail:
			ink = styleBad
		}
		parts := []string{s.ink(ink, pad(f.Status, len(checkWarn))), pad(clean(f.Check), widest), clean(f.Found)}
		if f.Advice != "" {
			parts = append(parts, "→ "+clean(f.Advice))
		}
		s.line(strings.Join(parts, gap))
	}
}
