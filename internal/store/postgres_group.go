package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// The phases of a transaction: which rows its statements lock. All statements of
// a phase are sent before any of the next one.
const (
	phaseWorkers = iota
	phaseRuns
	// phaseLanes: runs that begin, and those that end, count each other.
	phaseLanes
	// phaseStarts: new runs wait for those with the same idempotency key only.
	phaseStarts
	phaseAttempts
	// phaseRest: new rows wait for nobody.
	phaseRest
	// phaseAny is that of statements that lock nothing: they go when their unit
	// has come to them.
	phaseAny = -1
)

// pgGroup is one transaction of several units. Each unit runs until it has to
// know the outcome of a statement; then the statements of all of them go to the
// server together. So a group makes as many round trips as the longest of its
// units, however many there are.
type pgGroup struct {
	link   *pgLink
	units  []*pgUnit
	synced bool
	begun  bool
	// alive are the bridges whose rows are locked.
	alive map[Claim]bool
	row   record
}

// pgUnit is a unit on its way, and the engine of its session.
type pgUnit struct {
	group *pgGroup
	*unit
	session session
	resume  func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	pending []*pgCall
	buf     []byte
	// last is what was queued last.
	last *pgCall
	// phase is the last one that it has come to.
	phase int
	ended bool
}

// pgCall is a call in the form in which it is sent.
type pgCall struct {
	call
	st    *pgStatement
	phase int
	args  [][]byte
	// changed is how many rows it has changed.
	changed int64
}

// pgStatement is a statement that the connection has prepared.
type pgStatement struct {
	*pgconn.StatementDescription
	formats []int16
	phase   int
	// merged is the text that is several calls at once, many the statement when
	// it was needed; returns says what it returns, see mergedText.
	merged  string
	many    *pgStatement
	returns bool
}

func newPGGroup(l *pgLink, units []*unit, synced bool) *pgGroup {
	g := &pgGroup{link: l, synced: synced, alive: map[Claim]bool{}, units: make([]*pgUnit, len(units))}
	for i, u := range units {
		p := &pgUnit{group: g, unit: u, phase: phaseWorkers, buf: make([]byte, 0, 1024)}
		p.session.engine = p
		p.resume, p.stop = iter.Pull(func(yield func(struct{}) bool) {
			p.yield = yield
			p.err = p.exec(&p.session)
			p.ended = true
		})
		g.units[i] = p
	}
	return g
}

// stop ends units that are under way.
func (g *pgGroup) stop() {
	for _, u := range g.units {
		u.stop()
	}
}

// execute runs all units to their ends.
func (g *pgGroup) execute() error {
	for {
		for _, u := range g.units {
			if !u.ended && len(u.pending) == 0 {
				u.resume()
			}
			if u.ended && u.err != nil && !refusal(u.err) {
				return u.err
			}
		}
		batch := g.next()
		if len(batch) == 0 {
			if g.ended() {
				return nil
			}
			continue
		}
		if err := g.send(batch); err != nil {
			return err
		}
	}
}

func (g *pgGroup) ended() bool {
	return !slices.ContainsFunc(g.units, func(u *pgUnit) bool { return !u.ended || len(u.pending) > 0 })
}

// next takes the statements that may be sent: those of phases that no unit is
// before any more, in the order in which rows are locked.
func (g *pgGroup) next() []*pgCall {
	limit := math.MaxInt
	for _, u := range g.units {
		if !u.ended {
			limit = min(limit, u.phase)
		}
	}
	var batch []*pgCall
	for _, u := range g.units {
		n := 0
		for n < len(u.pending) && u.pending[n].phase <= limit {
			n++
		}
		batch = append(batch, u.pending[:n]...)
		u.pending = u.pending[n:]
	}
	slices.SortStableFunc(batch, func(a, b *pgCall) int {
		if a.phase == phaseRest && b.phase == phaseRest {
			return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(a.key, b.key))
		}
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.key, b.key))
	})
	beatFirst(batch)
	return batch
}

// beatFirst moves beats before those who share the row of their bridge. Two groups
// that had both shared it could neither of them go on to change it; and a beat
// changes nothing that the others ask for.
func beatFirst(batch []*pgCall) {
	for i, c := range batch {
		if c.text != beatWorker {
			continue
		}
		for ; i > 0 && batch[i-1].text == shareWorker && batch[i-1].key == c.key; i-- {
			batch[i], batch[i-1] = batch[i-1], c
		}
	}
}

// guesses: a unit that waits for no outcome costs a round trip less. Where several
// processes decide about the same runs, guesses are wrong more often, and each wrong
// one costs the whole group its work: then it is better to look for a while.
func (u *pgUnit) guesses() bool { return !u.again && u.group.link.careful == 0 }

// shareWorker keeps the row of a bridge from being changed.
const shareWorker = selectAlive + ` FOR SHARE`

// alive says yes before it knows, if the units are executed for the first time.
// The row stays locked then, and a no refuses all of them.
func (u *pgUnit) alive(bridge Claim) (ok bool, err error) {
	if u.group.alive[bridge] {
		return true, nil
	}
	key := u.session.key
	defer u.session.at(key)
	u.session.at(bridge.Worker)
	if u.again {
		ok, err = u.session.exists(shareWorker, bridge.Worker, bridge.Inc)
	} else {
		ok, err = true, u.session.later(1, shareWorker, bridge.Worker, bridge.Inc)
	}
	if ok && err == nil {
		u.group.alive[bridge] = true
	}
	return ok, err
}

func (u *pgUnit) workersChanged() { clear(u.group.alive) }

func (u *pgUnit) queue(c *call) error {
	st, err := u.group.link.prepare(c.text)
	if err != nil {
		return err
	}
	p := &pgCall{call: *c, st: st, phase: st.phase}
	p.call.args = nil
	if p.phase == phaseAny {
		p.phase = u.phase
	}
	u.phase = max(u.phase, p.phase)
	if p.args, err = st.encode(&u.buf, c.args); err != nil {
		return err
	}
	u.pending, u.last = append(u.pending, p), p
	return nil
}

var errStopped = errors.New("another unit of the transaction has failed")

func (u *pgUnit) wait() (int64, error) {
	for len(u.pending) > 0 {
		if !u.yield(struct{}{}) {
			return 0, errStopped
		}
	}
	return u.last.changed, nil
}

// prepare gives the statement of a text, which must be one of a bounded number
// of texts: statements stay prepared until the connection ends.
func (l *pgLink) prepare(text string) (*pgStatement, error) {
	if st, ok := l.statements[text]; ok {
		return st, nil
	}
	st, err := l.prepareRaw(numberParameters(text))
	if err != nil {
		return nil, lacking(postgresClassify, err, text)
	}
	st.phase = phaseOf(text)
	st.merged, st.returns = mergedText(text, st.ParamOIDs)
	l.statements[text] = st
	return st, nil
}

// prepareRaw prepares a text as it is.
func (l *pgLink) prepareRaw(text string) (*pgStatement, error) {
	if err := l.within(statementWait); err != nil {
		return nil, err
	}
	l.prepared++
	sd, err := l.conn.Prepare(context.Background(), fmt.Sprintf("s%d", l.prepared), text, nil)
	if err != nil {
		return nil, l.lost(err)
	}
	st := &pgStatement{StatementDescription: sd, formats: make([]int16, len(sd.ParamOIDs))}
	for i := range st.formats {
		st.formats[i] = pgtype.BinaryFormatCode
	}
	return st, nil
}

// phaseOf says which rows a statement locks.
func phaseOf(text string) int {
	switch text {
	case insertAttempt:
		return phaseRest
	case insertForeign:
		return phaseAttempts
	case insertRun:
		return phaseStarts
	}
	for _, p := range []struct {
		phase  int
		prefix string
	}{
		{phaseWorkers, `SELECT 1 FROM worker `},
		{phaseWorkers, `UPDATE worker `},
		{phaseWorkers, `INSERT INTO worker `},
		{phaseWorkers, `DELETE FROM worker `},
		{phaseAny, `SELECT `},
		{phaseAny, `BEGIN`},
		{phaseAttempts, `UPDATE attempt `},
		{phaseAttempts, `DELETE FROM attempt `},
		{phaseRest, `INSERT INTO event `},
		{phaseRest, `INSERT INTO run_label `},
		{phaseRest, `INSERT INTO late `},
		{phaseRest, `UPDATE late `},
		{phaseRest, `DELETE FROM late `},
		{phaseRest, `INSERT INTO signal `},
		{phaseRest, `UPDATE signal `},
		{phaseRest, `DELETE FROM signal `},
		{phaseRest, `INSERT INTO waiter `},
		{phaseRest, `UPDATE waiter `},
		{phaseRest, `DELETE FROM waiter `},
		{phaseRest, `INSERT INTO approval `},
		{phaseRest, `DELETE FROM approval `},
		{phaseRest, `INSERT INTO removed_run `},
		{phaseRest, `INSERT INTO child `},
		{phaseRest, `UPDATE child `},
		{phaseRest, `DELETE FROM child `},
		{phaseRest, `INSERT INTO dead_letter `},
		{phaseRest, `UPDATE dead_letter `},
		{phaseRest, `DELETE FROM dead_letter `},
		{phaseRest, `INSERT INTO turn `},
		{phaseRest, `UPDATE turn `},
		{phaseRest, `DELETE FROM turn `},
		{phaseLanes, `INSERT INTO lane `},
		{phaseLanes, `UPDATE lane `},
		{phaseLanes, `DELETE FROM lane `},
		{phaseRest, `INSERT INTO value_ref `},
		{phaseRest, `DELETE FROM value_ref `},
	} {
		if strings.HasPrefix(text, p.prefix) {
			return p.phase
		}
	}
	return phaseRuns
}

// encode gives arguments in the binary form of their parameters' types. Their
// bytes are in buf, or behind it.
func (st *pgStatement) encode(buf *[]byte, args []driver.NamedValue) ([][]byte, error) {
	if len(args) != len(st.ParamOIDs) {
		return nil, fmt.Errorf("%d arguments for %d parameters", len(args), len(st.ParamOIDs))
	}
	values := make([][]byte, len(args))
	for i := range args {
		at, ok := len(*buf), false
		switch v := args[i].Value.(type) {
		case nil:
			continue
		case int64:
			if ok = st.ParamOIDs[i] == pgtype.Int8OID; ok {
				*buf = binary.BigEndian.AppendUint64(*buf, uint64(v))
			} else if ok = st.ParamOIDs[i] == pgtype.Int4OID; ok {
				*buf = binary.BigEndian.AppendUint32(*buf, uint32(v))
			}
		case string:
			ok = st.ParamOIDs[i] == pgtype.TextOID
			*buf = append(*buf, postgresText(v)...)
		case []byte:
			// Values may be large: they are sent from where they are.
			if values[i], ok = v, st.ParamOIDs[i] == pgtype.ByteaOID; ok && v != nil {
				continue
			}
		}
		if !ok {
			return nil, fmt.Errorf("argument %d is %T, the parameter's type %d", i+1, args[i].Value, st.ParamOIDs[i])
		}
		// Not nil, which is NULL, though it may be empty.
		values[i] = (*buf)[at:len(*buf):len(*buf)]
	}
	return values, nil
}

// send executes statements in one round trip, the first with a BEGIN before it.
func (g *pgGroup) send(batch []*pgCall) error {
	l := g.link
	first := []*pgStatement(nil)
	if !g.begun {
		texts := []string{`BEGIN`}
		if !g.synced {
			texts = append(texts, `SET LOCAL synchronous_commit = off`)
		}
		for _, text := range texts {
			st, err := l.prepare(text)
			if err != nil {
				return err
			}
			first = append(first, st)
		}
	}
	steps, err := l.steps(batch)
	if err != nil {
		return lackingBatch(err, batch)
	}
	if err := l.within(statementWait); err != nil {
		return err
	}
	g.begun = true
	p := l.conn.StartPipeline(context.Background())
	for _, st := range first {
		p.SendQueryPrepared(st.Name, nil, nil, nil)
	}
	for i := range steps {
		steps[i].send(p)
	}
	err = p.Sync()
	for range first {
		if err == nil {
			_, err = g.result(p, nil)
		}
	}
	for i := range steps {
		if err != nil {
			break
		}
		err = steps[i].receive(g, p)
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	if err != nil && !errors.Is(err, errLate) && !errors.Is(err, errRow) {
		return lackingBatch(l.lost(err), batch)
	}
	return err
}

// errRow is in the chain of an error about what a row holds.
var errRow = errors.New("a row cannot be read")

// result reads the answer to one statement.
func (g *pgGroup) result(p *pgconn.Pipeline, c *pgCall) (int64, error) {
	got, err := p.GetResults()
	if err != nil {
		return 0, err
	}
	rows, ok := got.(*pgconn.ResultReader)
	if !ok {
		return 0, fmt.Errorf("the server answered with a %T", got)
	}
	var failed error
	for rows.NextRow() {
		if c != nil && c.each != nil && failed == nil {
			failed = g.each(rows, c.each)
		}
	}
	tag, err := rows.Close()
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, fmt.Errorf("%w: %w", errRow, failed)
	case c != nil && c.changes >= 0 && c.changes != tag.RowsAffected():
		return 0, errLate
	}
	return tag.RowsAffected(), nil
}

func (g *pgGroup) each(rows *pgconn.ResultReader, each func(*record) error) error {
	values := rows.Values()
	g.row.values = append(g.row.values[:0], make([]driver.Value, len(values))...)
	for i, v := range values {
		if v == nil {
			continue
		}
		switch oid := rows.FieldDescriptions()[i].DataTypeOID; oid {
		case pgtype.Int8OID:
			g.row.values[i] = int64(binary.BigEndian.Uint64(v))
		case pgtype.Int4OID:
			g.row.values[i] = int64(int32(binary.BigEndian.Uint32(v)))
		case pgtype.TextOID:
			g.row.values[i] = postgresPlain(string(v))
		case pgtype.ByteaOID:
			g.row.values[i] = slices.Clone(v)
		default:
			return fmt.Errorf("column %d has the type %d", i+1, oid)
		}
	}
	g.row.next, g.row.err = 0, nil
	if err := each(&g.row); err != nil {
		return err
	}
	return g.row.err
}
