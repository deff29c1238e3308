package oldplatform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/store"
)

// Target is where an import goes. All members are required, but for [Check].
type Target struct {
	Store *store.DB
	// Registry makes a registry on a store of agents. It checks and seals as the
	// registry of the server does.
	Registry func(registry.Store) *registry.Registry
	Now      func() time.Time
	// Tell is told what a person should know, while the import goes on. It is
	// called by one goroutine at a time.
	Tell func(Notice)
}

// Options of an import.
type Options struct {
	// Address is the URL of the existing platform's database, or its key=value
	// form. It is a secret, and is never shown.
	Address string
	// Protocol is what agents speak whose record does not say.
	Protocol string
	// DryRun reads and compares everything and writes nothing.
	DryRun bool
}

// NoticeKind says what a [Notice] is about.
type NoticeKind string

// The kinds of notices.
const (
	// NoticeStuck: a run had not ended.
	NoticeStuck NoticeKind = "stuck"
	// NoticeRefused: a record was not imported.
	NoticeRefused NoticeKind = "refused"
	// NoticeHint: a record was imported, and there is something to be done.
	NoticeHint NoticeKind = "hint"
)

// Notice is one line for people.
type Notice struct {
	Kind NoticeKind `json:"kind"`
	// Table and ID name the record over there; Name is what people call it.
	Table string `json:"table"`
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	// Text says what is the matter and what to do.
	Text string `json:"text"`
}

// Counts says what became of the rows of one table. Read is the sum of the
// others.
type Counts struct {
	Table     string `json:"table"`
	Read      int    `json:"read"`
	Imported  int    `json:"imported"`
	Changed   int    `json:"changed"`
	Unchanged int    `json:"unchanged"`
	Refused   int    `json:"refused"`
	// Left are rows of a table that has no counterpart here.
	Left int `json:"left"`
}

// Report is what came of an import. A dry run gives what would have come.
type Report struct {
	Tables []*Counts `json:"tables"`
	// Stuck counts the runs that had not ended.
	Stuck  int  `json:"stuck"`
	DryRun bool `json:"dry_run"`
}

// Refused counts the rows that were not imported though they have a place here.
func (r *Report) Refused() int {
	n := 0
	for _, t := range r.Tables {
		n += t.Refused
	}
	return n
}

// Writes counts the rows that were imported or brought up to date.
func (r *Report) Writes() int {
	n := 0
	for _, t := range r.Tables {
		n += t.Imported + t.Changed
	}
	return n
}

// Check gives the error that [Import] would begin with, without need of
// t.Store: so that nothing need be made for an import that cannot be.
func Check(ctx context.Context, t Target, o Options) error {
	im := &importer{target: t, options: o}
	if err := im.checkProtocol(); err != nil {
		return err
	}
	d, err := open(ctx, o.Address)
	if err != nil {
		return err
	}
	defer d.close()
	return d.mayRead(ctx)
}

// Import takes over a database of the existing platform (package documentation).
// The error is a [*parley.Error]: invalid if the address is none, or not that of
// such a database, or its user may not read it, or the protocol is unknown; unavailable if one of the two
// databases fails on the way: then what the Report counts was done, and the
// import can be repeated. That records are refused is no error.
func Import(ctx context.Context, t Target, o Options) (*Report, error) {
	im := &importer{target: t, options: o, report: &Report{DryRun: o.DryRun}, workflows: map[string]placedWorkflow{}, names: map[string]string{}}
	if err := im.checkProtocol(); err != nil {
		return im.report, err
	}
	d, err := open(ctx, o.Address)
	if err != nil {
		return im.report, err
	}
	defer d.close()
	if err := d.mayRead(ctx); err != nil {
		return im.report, err
	}
	tx, err := d.begin(ctx)
	if err != nil {
		return im.report, err
	}
	// The snapshot was only read: it can end in any way.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	return im.report, im.all(ctx, d, tx)
}

// importer is one import.
type importer struct {
	target  Target
	options Options

	// workflows are the definitions that were read, by id; names are the names
	// that workflow_ids belong to.
	workflows map[string]placedWorkflow
	names     map[string]string

	mu     sync.Mutex // protects report and Tell
	report *Report
}

// placedWorkflow is what runs need to know of their definition.
type placedWorkflow struct {
	workflow string
	loops    map[string]bool
}

func (im *importer) checkProtocol() error {
	known := im.target.Registry(&draft{}).Protocols()
	if slices.Contains(known, im.options.Protocol) {
		return nil
	}
	return parley.Errorf(parley.CodeInvalid, "Unsupported protocol: %s. Supported protocols: %s", im.options.Protocol, strings.Join(known, ", "))
}

func (im *importer) all(ctx context.Context, d *database, tx pgx.Tx) error {
	for _, step := range []func(context.Context, *database, pgx.Tx) error{
		im.agents, im.definitions, im.runs, im.audits, im.uncarried,
	} {
		if err := step(ctx, d, tx); err != nil {
			return err
		}
	}
	return nil
}

// table adds a line to the report.
func (im *importer) table(name string) *Counts {
	c := &Counts{Table: name}
	im.report.Tables = append(im.report.Tables, c)
	return c
}

func (im *importer) tell(n Notice) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if n.Kind == NoticeStuck {
		im.report.Stuck++
	}
	im.target.Tell(n)
}

// put writes a record, or compares it on a dry run. A refusal is told and
// counted, and is no error; ok says that there was none.
func (im *importer) put(ctx context.Context, c *Counts, of Notice, in store.Import, err error) (state store.ImportState, ok bool, _ error) {
	if err == nil {
		in.At = im.target.Now()
		state, err = im.write(ctx, in)
	}
	if refused(err) {
		of.Kind, of.Text = NoticeRefused, messageOf(err)
		im.tell(of)
	} else if err != nil {
		return state, false, err
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	c.count(state, err, 1)
	return state, err == nil, nil
}

// write writes a record unless it is there as it is, or on a dry run says what
// would come of it.
func (im *importer) write(ctx context.Context, in store.Import) (store.ImportState, error) {
	state, err := im.target.Store.ImportState(ctx, in.Kind, in.ID, in.Digest)
	switch {
	case err != nil || state == store.ImportSame:
		return state, err
	case im.options.DryRun:
		return im.target.Store.ForeseeImport(ctx, in)
	}
	return im.target.Store.Import(ctx, in)
}

func (c *Counts) count(state store.ImportState, err error, n int) {
	c.Read += n
	switch {
	case err != nil:
		c.Refused += n
	case state == store.ImportNew:
		c.Imported += n
	case state == store.ImportChanged:
		c.Changed += n
	default:
		c.Unchanged += n
	}
}

// refused reports whether err is about the record, and the next one can be tried.
func refused(err error) bool {
	switch parley.CodeOf(err) {
	case parley.CodeInvalid, parley.CodeConflict, parley.CodeLimit, parley.CodeUnsupportedProtocol:
		return true
	}
	return false
}

func (im *importer) agents(ctx context.Context, d *database, tx pgx.Tx) error {
	rows, err := d.agents(ctx, tx)
	if err != nil {
		return err
	}
	c := im.table("agents")
	plain := 0
	for {
		row, err := rows.next(ctx)
		if err != nil || row == nil {
			if plain > 0 && plain == c.Read {
				im.tell(Notice{Kind: NoticeHint, Table: "agents", Text: fmt.Sprintf(
					"all of the %d agents say %s, the default of the column; the bridge of the existing platform speaks %s only: parley agent detect NAME finds out",
					plain, parley.ProtocolSimpleA2A, parley.ProtocolJSONRPC,
				)})
			}
			return err
		}
		of := Notice{Table: "agents", ID: row.ID, Name: row.Name}
		in, err := im.target.agent(ctx, row, im.options.Protocol)
		in.Digest = digestAgent(row)
		if row.Protocol == nil {
			// Another --protocol makes another record.
			in.Digest += "," + im.options.Protocol
		} else if *row.Protocol == parley.ProtocolSimpleA2A {
			plain++
		}
		state, ok, err := im.put(ctx, c, of, in, err)
		if err != nil {
			return err
		}
		if ok && state != store.ImportSame && withoutCredential(in.Agent) {
			of.Kind, of.Text = NoticeHint, fmt.Sprintf(
				"its auth_type is %s and it has no credential, so it is called without one, as over there: parley agent set %s --auth %s --auth-secret env:NAME",
				in.Agent.Auth.Type, shellQuote(row.Name), in.Agent.Auth.Type,
			)
			im.tell(of)
		}
	}
}

func (im *importer) definitions(ctx context.Context, d *database, tx pgx.Tx) error {
	rows, err := d.definitions(ctx, tx)
	if err != nil {
		return err
	}
	c := im.table("workflow_definitions")
	for {
		row, err := rows.next(ctx)
		if err != nil || row == nil {
			return err
		}
		id, err := im.workflowOf(ctx, row)
		if err != nil {
			return err
		}
		placed := placedWorkflow{workflow: id, loops: map[string]bool{}}
		for _, step := range loopBodies(row.Data) {
			placed.loops[step] = true
		}
		im.workflows[row.ID] = placed
		in, err := definition(row, id)
		in.Digest = digest(row)
		of := Notice{Table: "workflow_definitions", ID: row.ID, Name: fmt.Sprintf("%s, version %d", row.Name, row.Version)}
		_, ok, err := im.put(ctx, c, of, in, err)
		if err != nil {
			return err
		}
		if why := faults(row); ok && why != nil {
			of.Kind, of.Text = NoticeHint, "it is kept, but this version cannot run it: "+why.Error()
			im.tell(of)
		}
	}
}

// workflowOf gives the workflow that a definition belongs to: the one where it,
// or an earlier version of its name, is already.
func (im *importer) workflowOf(ctx context.Context, row *definitionRow) (string, error) {
	there, err := im.target.Store.Definition(ctx, row.ID)
	if err == nil {
		im.names[there.Workflow] = row.Name
		return there.Workflow, nil
	}
	if parley.CodeOf(err) != parley.CodeNotFound {
		return "", err
	}
	id := workflowID(row.Name, false)
	owner, known := im.names[id]
	if !known {
		versions, _, err := im.target.Store.Versions(ctx, id, parley.Page{Limit: 1})
		switch {
		case err == nil && versions[0].Workflow == id:
			owner = versions[0].Name
		case err == nil || parley.CodeOf(err) == parley.CodeNotFound:
			owner = row.Name
		default:
			return "", err
		}
		im.names[id] = owner
	}
	return workflowID(row.Name, owner != row.Name), nil
}

func (im *importer) audits(ctx context.Context, d *database, tx pgx.Tx) error {
	rows, err := d.audits(ctx, tx)
	if err != nil {
		return err
	}
	c := im.table("audit_logs")
	return im.parallel(ctx, func(ctx context.Context) (job, error) {
		row, err := rows.next(ctx)
		if err != nil || row == nil {
			return job{}, err
		}
		return job{int64(len(textOf(row.Changes))), func(ctx context.Context) error {
			in, err := audit(row)
			_, _, err = im.put(ctx, c, Notice{Table: "audit_logs", ID: row.ID}, in, err)
			return err
		}}, nil
	})
}

func audit(row *auditRow) (store.Import, error) {
	at, err := timeOf(row.CreatedAt)
	if err != nil {
		return store.Import{}, err
	}
	a := &store.Audit{
		ID: row.ID, At: at, EntityType: row.EntityType, EntityID: row.EntityID, Action: row.Action, By: textOf(row.User),
	}
	if deep(textOf(row.Changes)) {
		return store.Import{}, tooDeep("its changes")
	}
	if row.Changes != nil {
		a.Changes = redact([]byte(*row.Changes), false)
	}
	return store.Import{Kind: store.ImportAudit, ID: row.ID, Digest: digest(a), Audit: a}, nil
}

// uncarried counts the rows of tables that have no counterpart here.
func (im *importer) uncarried(ctx context.Context, d *database, tx pgx.Tx) error {
	for _, name := range uncarried() {
		if _, ok := d.columns[name]; !ok {
			continue
		}
		n, err := count(ctx, tx, `SELECT count(*) FROM `+name)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		c := im.table(name)
		c.Read, c.Left = n, n
	}
	return nil
}

// shellQuote gives a text as one word of a shell's command line, which reads
// nothing into it.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func messageOf(err error) string {
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
