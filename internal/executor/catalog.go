package executor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// CatalogConfig is what a [Catalog] is made of. All members but Changed are
// required.
type CatalogConfig struct {
	DB       *store.DB
	Executor *Executor
	Now      func() time.Time
	NewID    func() string
	// KnownAgent reports whether an agent is registered and active. A workflow
	// that names another is deployed with a warning: its agents may come later.
	KnownAgent func(ctx context.Context, name string) bool
	// Changed is called after versions or aliases have changed; nil is nothing.
	Changed func(ctx context.Context)
	// CheckSecret says why a reference to a secret cannot be read here, without
	// reading it; nil knows nothing.
	CheckSecret func(ref string) error
}

// Catalog keeps the deployed workflows. Versions are immutable (rule C10). Its
// methods may be called concurrently.
type Catalog struct{ cfg CatalogConfig }

// NewCatalog gives the catalog of a database.
func NewCatalog(cfg CatalogConfig) *Catalog { return &Catalog{cfg: cfg} }

// changed lets the next look-up ask the store, and tells who wants to know.
func (c *Catalog) changed(ctx context.Context) {
	c.cfg.Executor.defs.forget()
	c.cfg.Executor.deploys()
	if c.cfg.Changed != nil {
		c.cfg.Changed(ctx)
	}
}

// parse compiles a document; errors come back as [parley.Problems].
func (c *Catalog) parse(ctx context.Context, req parley.ApplyRequest) (*workflow.Definition, parley.Problems) {
	def, problems := workflow.Parse(workflow.ParseOptions{
		File: req.File, Limits: c.cfg.Executor.cfg.Documents,
		Idempotent: func(agent string) bool {
			info, known := c.cfg.Executor.cfg.Agent(ctx, agent)
			return !known || info.Idempotent // one that is not known may come later; a start asks again
		},
	}, req.Source)
	if def == nil {
		return nil, problems
	}
	for _, step := range summary(def.Body, "", nil) {
		names := step.Agents
		if step.Agent != "" {
			names = []string{step.Agent}
		}
		for _, name := range names {
			if !c.cfg.KnownAgent(ctx, name) {
				problems = append(problems, parley.Problem{
					File: req.File, Path: "steps." + step.ID, Severity: parley.SeverityWarning, Code: string(parley.CodeUnknownAgent),
					Text:       fmt.Sprintf("agent %q is not registered", name),
					Suggestion: "parley agent add URL --name " + name,
				})
			}
		}
	}
	problems = append(problems, c.unknownChildren(ctx, req.File, def)...)
	problems = append(problems, c.lostSessions(ctx, req.File, def)...)
	return def, append(problems, c.silent(req.File, def)...)
}

// unknownChildren warns of workflows that steps run and that are not deployed: they
// may come later. One may run itself.
func (c *Catalog) unknownChildren(ctx context.Context, file string, def *workflow.Definition) (problems parley.Problems) {
	known := map[string]bool{def.ID: true, def.Name: true}
	for _, child := range def.Children {
		if known[child.Workflow] {
			continue
		}
		known[child.Workflow] = true
		_, err := c.cfg.DB.Definition(ctx, child.Workflow)
		if parley.CodeOf(err) == parley.CodeNotFound {
			problems = append(problems, parley.Problem{
				File: file, Path: "steps." + child.Step, Severity: parley.SeverityWarning, Code: "unknown_workflow",
				Text: fmt.Sprintf("workflow %q is not deployed: no run can be started before it is", child.Workflow),
			})
		}
	}
	return problems
}

// lostSessions warns of sessions of agents whose protocol knows none (rule P1).
func (c *Catalog) lostSessions(ctx context.Context, file string, def *workflow.Definition) (problems parley.Problems) {
	look := func(path string, s *workflow.Step) {
		names := append(slices.Clip(s.Agents), s.Among...)
		if s.Agent != "" {
			names = append(names, s.Agent)
		}
		for _, name := range names {
			info, known := c.cfg.Executor.cfg.Agent(ctx, name)
			if !known || info.Protocol == "" || info.Protocol == parley.ProtocolJSONRPC {
				continue
			}
			problems = append(problems, parley.Problem{
				File: file, Path: "steps." + path, Severity: parley.SeverityWarning, Code: "session_ignored",
				Text: fmt.Sprintf("agent %q speaks %s: session does nothing, only agents of %s (A2A) continue a conversation",
					name, info.Protocol, parley.ProtocolJSONRPC),
				Suggestion: "leave session out, or hand on in input what the agent has to know",
			})
		}
	}
	var within func(b *workflow.Block, prefix string)
	within = func(b *workflow.Block, prefix string) {
		for _, s := range b.Steps {
			if s.Session != "" {
				look(prefix+s.ID, s)
			}
			for _, inside := range s.AllBlocks() {
				within(inside, prefix+s.ID+"/")
			}
		}
	}
	within(def.Body, "")
	if def.Finally != nil {
		within(def.Finally, "")
	}
	return problems
}

// Validate gives what Apply would find, errors and warnings.
func (c *Catalog) Validate(ctx context.Context, req parley.ApplyRequest) parley.Problems {
	_, problems := c.parse(ctx, req)
	return problems
}

// Apply deploys a document. created is false if equal content was deployed
// already. The error is [parley.Problems] for a faulty document, and has code
// conflict for a version that exists with other content, or if what is to be
// replaced was changed, not_found if there is nothing to replace.
func (c *Catalog) Apply(ctx context.Context, req parley.ApplyRequest) (parley.WorkflowVersion, bool, error) {
	if req.Replace != "" && len(req.Source) == 0 {
		return c.setStatus(ctx, req)
	}
	def, problems := c.parse(ctx, req)
	if def == nil {
		return parley.WorkflowVersion{}, false, problems
	}
	now := c.cfg.Now().UTC().Truncate(time.Microsecond)
	sum := sha256.Sum256(req.Source)
	row := store.Definition{
		ID: c.cfg.NewID(), Workflow: def.ID, Name: def.Name, Version: def.Version, Description: def.Description,
		Format: format(req.Source), Source: req.Source, Digest: hex.EncodeToString(sum[:]), Status: req.Status,
		CreatedAt: now, UpdatedAt: now, CreatedBy: req.By, UpdatedBy: req.By,
		Triggers: startedBy(def),
	}
	mode := store.PutVersion
	switch {
	case req.Replace != "":
		mode, row.ID, row.Number = store.PutReplace, req.Replace, req.Base
	case req.Always:
		mode = store.PutAlways
	}
	if mode != store.PutVersion {
		row.Version = "" // the old API counts versions itself
	}
	id := row.ID
	row, err := c.cfg.DB.PutDefinition(ctx, row, mode)
	if err != nil {
		return parley.WorkflowVersion{}, false, err
	}
	c.changed(ctx)
	v := version(row, def)
	v.Warnings = problems
	return v, row.ID == id, nil
}

// setStatus switches a version on or off without changing its document.
func (c *Catalog) setStatus(ctx context.Context, req parley.ApplyRequest) (parley.WorkflowVersion, bool, error) {
	err := c.cfg.DB.SetDefinitionStatus(ctx, req.Replace, req.Status, req.By, c.cfg.Now().UTC().Truncate(time.Microsecond))
	if err != nil {
		return parley.WorkflowVersion{}, false, err
	}
	c.changed(ctx)
	v, err := c.Get(ctx, req.Replace)
	return v, false, err
}

// format tells the two spellings apart as the parser does.
func format(source []byte) string {
	trimmed := bytes.TrimLeft(source, " \t\r\n")
	if len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		return "json"
	}
	return "yaml"
}

// Get gives one version with its source and its steps. One that cannot be run
// (it was imported) has no steps, and its faults as warnings. The error has code
// not_found for an unknown ref.
func (c *Catalog) Get(ctx context.Context, ref string) (parley.WorkflowVersion, error) {
	row, err := c.cfg.DB.Newest(ctx, ref)
	if err != nil {
		return parley.WorkflowVersion{}, err
	}
	compiled, err := c.cfg.Executor.defs.compile(row)
	var v parley.WorkflowVersion
	if err == nil {
		v = version(row, compiled.def)
	} else {
		v = version(row, nil)
		if problems, ok := errors.AsType[parley.Problems](err); ok {
			v.Warnings = problems
		}
	}
	one := []parley.WorkflowVersion{v}
	err = c.named(ctx, one)
	return one[0], err
}

// List gives one page of workflows, each by its newest version, and how many
// there are in all.
func (c *Catalog) List(ctx context.Context, q parley.WorkflowQuery) ([]parley.WorkflowVersion, int, error) {
	rows, total, err := c.cfg.DB.Definitions(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	list := c.versions(rows)
	return list, total, c.named(ctx, list)
}

// Versions gives one page of the versions of one workflow, newest first, and how
// many there are in all. The error has code not_found for an unknown ref.
func (c *Catalog) Versions(ctx context.Context, ref string, p parley.Page) ([]parley.WorkflowVersion, int, error) {
	rows, total, err := c.cfg.DB.Versions(ctx, ref, p)
	if err != nil {
		return nil, 0, err
	}
	list := c.versions(rows)
	return list, total, c.named(ctx, list)
}

func (c *Catalog) versions(rows []store.Definition) []parley.WorkflowVersion {
	out := make([]parley.WorkflowVersion, len(rows))
	for i, row := range rows {
		out[i] = version(row, nil)
		if compiled, err := c.cfg.Executor.defs.compile(row); err == nil {
			out[i].Steps = summary(compiled.def.Body, "", nil)
		}
	}
	return out
}

func version(row store.Definition, def *workflow.Definition) parley.WorkflowVersion {
	v := parley.WorkflowVersion{
		ID: row.ID, Workflow: row.Workflow, Name: row.Name, Version: row.Version, Number: row.Number,
		Description: row.Description, Format: row.Format, Source: string(row.Source), Status: row.Status,
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, CreatedBy: row.CreatedBy, UpdatedBy: row.UpdatedBy,
		Deprecated: row.Deprecated,
	}
	if def != nil {
		v.Steps = summary(def.Body, "", nil)
	}
	return v
}

// summary lists the steps of a block and of the blocks inside it, by path.
func summary(b *workflow.Block, prefix string, out []parley.StepSummary) []parley.StepSummary {
	for _, s := range b.Steps {
		step := parley.StepSummary{ID: prefix + s.ID, Kind: string(s.Kind), Agent: s.Agent, Agents: s.Agents}
		if s.Child != nil {
			step.Workflow = s.Child.Workflow
		}
		out = append(out, step)
		for _, inside := range s.Blocks() {
			out = summary(inside, prefix+s.ID+"/", out)
		}
	}
	return out
}
