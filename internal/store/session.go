package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"
)

// session is the write connection, used below database/sql because its
// bookkeeping costs as much as the statements. It belongs to the writer.
type session struct {
	conn       driver.Conn
	dialect    *dialect
	statements map[string]*statement
	args       []driver.NamedValue
	row        record
	// synced is the durability that the connection is set to.
	synced bool
	// living is the bridge that was found alive in the present transaction.
	living Claim
}

// begin starts a transaction.
func (s *session) begin(synced bool) error {
	s.living = Claim{}
	return s.dialect.begin(s, synced)
}

const selectAlive = `SELECT 1 FROM worker WHERE name = ? AND inc = ? AND dead = 0`

// alive reports whether owner's bridge was neither replaced nor declared dead.
// What was true once is true until the transaction ends, unless a unit of it
// says otherwise (see workersChanged): nobody else writes meanwhile.
func (s *session) alive(owner Claim) (bool, error) {
	bridge := Claim{Worker: owner.Worker, Inc: owner.Inc}
	if s.living == bridge {
		return true, nil
	}
	ok, err := s.exists(selectAlive+s.dialect.lockShared, bridge.Worker, bridge.Inc)
	if ok && err == nil {
		s.living = bridge
	}
	return ok, err
}

// workersChanged is told by units that write the rows of bridges.
func (s *session) workersChanged() { s.living = Claim{} }

// statement is one prepared statement.
type statement struct {
	driver.Stmt
	execer  driver.StmtExecContext
	queryer driver.StmtQueryContext
}

func newSession(conn driver.Conn, d *dialect) *session {
	return &session{conn: conn, dialect: d, statements: map[string]*statement{}, synced: true}
}

func (s *session) close() error {
	var errs []error
	for _, st := range s.statements {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, s.conn.Close())...)
}

// prepare gives the statement of a text, which must be one of a bounded
// number of texts: statements stay prepared until the session ends.
func (s *session) prepare(text string) (*statement, error) {
	if st, ok := s.statements[text]; ok {
		return st, nil
	}
	p, err := s.conn.Prepare(s.dialect.rebind(text))
	if err != nil {
		return nil, err
	}
	execer, ok1 := p.(driver.StmtExecContext)
	queryer, ok2 := p.(driver.StmtQueryContext)
	if !ok1 || !ok2 {
		return nil, errors.Join(errors.New("the driver's statements take no context"), p.Close())
	}
	st := &statement{p, execer, queryer}
	s.statements[text] = st
	return st, nil
}

// bind puts args into the driver's form. They are int64, float64, string,
// []byte or nil.
func bind(to []driver.NamedValue, args ...any) []driver.NamedValue {
	for _, a := range args {
		to = append(to, driver.NamedValue{Ordinal: len(to) + 1, Value: a})
	}
	return to
}

// exec runs a statement and gives the number of rows that it has changed.
func (s *session) exec(text string, args ...any) (int64, error) {
	s.args = bind(s.args[:0], args...)
	return s.execBound(text, s.args)
}

// execBound is exec for arguments that were bound outside the writer.
func (s *session) execBound(text string, args []driver.NamedValue) (int64, error) {
	st, err := s.prepare(text)
	if err != nil {
		return 0, err
	}
	// A statement is never interrupted half way: the background context is meant.
	res, err := st.execer.ExecContext(context.Background(), args)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// execOnce runs a text that must not be kept prepared.
func (s *session) execOnce(text string) error {
	p, err := s.conn.Prepare(text)
	if err != nil {
		return err
	}
	_, err = p.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return errors.Join(err, p.Close())
}

// query runs a statement and calls each with every row, which is valid until
// each returns. each must not use the session.
func (s *session) query(text string, each func(*record) error, args ...any) (err error) {
	st, err := s.prepare(text)
	if err != nil {
		return err
	}
	s.args = bind(s.args[:0], args...)
	rows, err := st.queryer.QueryContext(context.Background(), s.args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	s.row.values = append(s.row.values[:0], make([]driver.Value, len(rows.Columns()))...)
	for {
		if err := rows.Next(s.row.values); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		s.row.next, s.row.err = 0, nil
		if err := each(&s.row); err != nil {
			return err
		}
		if s.row.err != nil {
			return s.row.err
		}
	}
}

// exists reports whether a query gives a row.
func (s *session) exists(text string, args ...any) (bool, error) {
	found := false
	err := s.query(text, func(*record) error { found = true; return nil }, args...)
	return found, err
}

// record is one row, whose columns are read in order. The first column that is
// not of the wanted type is kept in err.
type record struct {
	values []driver.Value
	next   int
	err    error
}

func (r *record) value() driver.Value {
	v := r.values[r.next]
	r.next++
	return v
}

func (r *record) wrong(v driver.Value, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("column %d holds %T instead of %s", r.next, v, want)
	}
}

func (r *record) str() string {
	switch v := r.value().(type) {
	case string:
		return v
	case nil:
		return ""
	default:
		r.wrong(v, "text")
		return ""
	}
}

func (r *record) int() int64 {
	switch v := r.value().(type) {
	case int64:
		return v
	case nil:
		return 0
	default:
		r.wrong(v, "an integer")
		return 0
	}
}

func (r *record) bytes() []byte {
	switch v := r.value().(type) {
	case []byte:
		return v
	case nil:
		return nil
	default:
		r.wrong(v, "bytes")
		return nil
	}
}

func (r *record) flag() bool { return r.int() != 0 }

func (r *record) duration() time.Duration { return time.Duration(r.int()) * time.Microsecond }

func (r *record) time() time.Time {
	if v := r.int(); v != 0 {
		return time.UnixMicro(v).UTC()
	}
	return time.Time{}
}

// micros gives a time as it is stored: NULL for none.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// flag gives a truth value as it is stored.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// blob gives bytes as they are stored: NULL for none.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// text gives a string as it is stored where "" is NULL.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}
