package executor

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// definitions compiles deployed versions once and keeps them: a version never
// changes. Which version a name means is asked anew after a second, or at once
// when this process has deployed one.
type definitions struct {
	store Store
	now   func() time.Time

	mu    sync.Mutex // protects the fields below
	byKey map[string]*compiledVersion
	refs  map[string]resolved
	// forgotten counts the calls of forget: what was asked for before one is not kept.
	forgotten int
}

type compiledVersion struct {
	row store.Definition
	def *workflow.Definition
}

type resolved struct {
	version *compiledVersion
	until   time.Time
}

const (
	maxCompiled = 1_000
	refFresh    = time.Second
)

func newDefinitions(s Store, now func() time.Time) *definitions {
	return &definitions{
		store: s, now: now,
		byKey: make(map[string]*compiledVersion), refs: make(map[string]resolved),
	}
}

// resolve gives the version that ref means now. It never is the call of an agent: those
// are no workflows that anybody could name.
func (d *definitions) resolve(ctx context.Context, ref string) (*compiledVersion, error) {
	d.mu.Lock()
	r, ok := d.refs[ref]
	forgotten := d.forgotten
	d.mu.Unlock()
	if ok && d.now().Before(r.until) {
		return r.version, nil
	}
	row, err := d.store.Definition(ctx, ref)
	if err != nil {
		return nil, err
	}
	v, err := d.compile(row)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgotten != forgotten {
		return v, nil // it may mean something else by now
	}
	if len(d.refs) >= maxCompiled {
		clear(d.refs)
	}
	d.refs[ref] = resolved{version: v, until: d.now().Add(refFresh)}
	return v, nil
}

// of gives the version that a run stays on. Its definition's id will not do:
// that may come to stand for a newer version (the old API's PUT).
func (d *definitions) of(ctx context.Context, run store.Run) (*compiledVersion, error) {
	ref := run.Workflow + "@" + run.Version
	if strings.HasPrefix(run.DefinitionID, callPrefix) {
		ref = run.DefinitionID
	}
	d.mu.Lock()
	v := d.byKey[ref]
	d.mu.Unlock()
	if v != nil {
		return v, nil
	}
	row, err := d.row(ctx, ref)
	if parley.CodeOf(err) == parley.CodeNotFound {
		// Not its code: it would be told as a run that was removed, or by nobody.
		return nil, parley.Errorf(parley.CodeInvalid, "run %s stays on version %q of workflow %q, which the database has no more: deploy that document again as that version",
			run.ID, run.Version, run.Workflow)
	}
	if err != nil {
		return nil, err
	}
	return d.compile(row)
}

// behind gives what a history is read by: the version that the run stays on, or
// what was recorded, if the run was taken over from elsewhere.
func (d *definitions) behind(ctx context.Context, h store.History) (*workflow.Definition, error) {
	if h.Run.Imported() {
		return workflow.Recorded(h.Run.Workflow, h.Run.Name, h.Events), nil
	}
	v, err := d.of(ctx, h.Run)
	if err != nil {
		return nil, err
	}
	return v.def, nil
}

// key names a version for ever.
func key(row store.Definition) string {
	if strings.HasPrefix(row.ID, callPrefix) {
		return row.ID
	}
	return row.Workflow + "@" + row.Version
}

// forget makes the next look-up ask the store: something was deployed.
func (d *definitions) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.refs)
	d.forgotten++
}

// row reads a version, or makes up the one-step workflow of an agent call.
func (d *definitions) row(ctx context.Context, ref string) (store.Definition, error) {
	if agent, ok := strings.CutPrefix(ref, callPrefix); ok {
		return callDefinition(agent), nil
	}
	return d.store.Definition(ctx, ref)
}

func (d *definitions) compile(row store.Definition) (*compiledVersion, error) {
	d.mu.Lock()
	v := d.byKey[key(row)]
	d.mu.Unlock()
	if v != nil && v.row.ID == row.ID && v.row.Status == row.Status && (v.row.Deprecated == nil) == (row.Deprecated == nil) {
		return v, nil
	}
	def, problems := workflow.ParseStored(row.Name, row.Version, row.Source)
	if def == nil {
		// It was imported, or deployed by another version of this program.
		return nil, parley.Errorf(parley.CodeInvalid, "workflow %s version %s cannot be run by this version: %w", row.Workflow, row.Version, problems)
	}
	def.ID, def.Name, def.Version = row.Workflow, row.Name, row.Version
	v = &compiledVersion{row: row, def: def}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byKey) >= maxCompiled {
		clear(d.byKey)
	}
	d.byKey[key(row)] = v
	return v, nil
}

// callPrefix marks the definition of an agent call; the agent's name follows.
const callPrefix = "_call:"

// callWorkflow is the workflow_id of agent calls, and their label.
const callWorkflow = "_call"

// callDefinition is the one-step workflow that `agent call` runs. It follows
// from the agent's name alone, so it need not be stored.
func callDefinition(agent string) store.Definition {
	name, err := json.Marshal(agent)
	if err != nil {
		name = []byte(`""`)
	}
	source := `{"name":"call","workflow_id":"call","version":"1","steps":[{"id":"call","agent":` + string(name) +
		`,"input":"${workflow.input}"}]}`
	return store.Definition{
		ID: callPrefix + agent, Workflow: callWorkflow, Name: "call " + agent, Version: "1", Number: 1,
		Format: "json", Source: []byte(source), Status: parley.AgentActive,
	}
}
