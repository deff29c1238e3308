package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// CheckArchived reads the history of a run that comes with an archive by the
// definition that comes along, and refuses it unless it leads to the end that the
// run is said to have: what is taken in can be shown and run again.
func (x *Executor) CheckArchived(_ context.Context, a *store.Archived) error {
	wrong := func(format string, args ...any) error {
		return parley.Errorf(parley.CodeInvalid, "run %q: "+format, append([]any{a.Run.ID}, args...)...)
	}
	def, err := archivedDefinition(a)
	if err != nil {
		return wrong("its definition cannot be read by this version: %w", err)
	}
	if def == nil {
		return wrong("its definition is missing")
	}
	state := workflow.NewState(a.Run.ID, def, x.cfg.Limits)
	for _, e := range a.Events {
		if !json.Valid(e.Data) && len(e.Data) > 0 {
			return wrong("the data of event %d is no JSON", e.Seq)
		}
		if err := state.Replay(e); err != nil {
			return wrong("its events do not follow from one another: %w", err)
		}
	}
	if err := showable(state); err != nil {
		return wrong("its events do not go together: %w", err)
	}
	if got := state.Status(); got != a.Run.Status || !got.Terminal() {
		return wrong("it is said to be %s, and its events lead to %s", a.Run.Status, got)
	}
	if len(a.Run.Error) > 0 {
		var e parley.Error
		if err := json.Unmarshal(a.Run.Error, &e); err != nil {
			return wrong("its error cannot be read")
		}
	}
	return nil
}

// showable tries what is done with a run that is over: a history that was made by hand
// may fit in each event, and lead where no run gets.
func showable(s *workflow.State) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	for _, step := range s.View().Steps {
		s.Ended(step.ID)
	}
	s.Open()
	s.Copies()
	s.Edits()
	return nil
}

// archivedDefinition compiles what a run of an archive is on; nil is nothing.
func archivedDefinition(a *store.Archived) (*workflow.Definition, error) {
	row := a.Definition
	agent, call := strings.CutPrefix(a.Run.DefinitionID, callPrefix)
	switch {
	case a.Run.Imported() && row == nil:
		return workflow.Recorded(a.Run.Workflow, a.Run.Name, a.Events), nil
	case call && row == nil:
		made := callDefinition(agent)
		row = &made
	case row == nil:
		return nil, nil //nolint:nilnil // the caller says that it is missing
	}
	def, problems := workflow.ParseStored(row.Name, row.Version, row.Source)
	if def == nil {
		return nil, problems
	}
	def.ID, def.Name, def.Version = row.Workflow, row.Name, row.Version
	return def, nil
}
