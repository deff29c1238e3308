package store

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"
)

// session is how a unit writes: the statements of the transaction that it
// shares with others.
type session struct {
	engine engine
	args   []driver.NamedValue
	call   call
	// key names the row that the next statements lock; see call.key.
	key string
	// touches: it is worth while to spare columns that have an index.
	touches bool
}

// engine executes the statements of a session. How many travel together is its
// own affair.
type engine interface {
	// queue executes a statement, now or with what is queued behind it. After an
	// error the unit has failed.
	queue(c *call) error
	// wait gives the rows that the last statement has changed, when all that
	// are queued have been executed.
	wait() (int64, error)
	// guesses says that the usual outcome of a statement may be taken for granted:
	// the unit is executed once more if it has another.
	guesses() bool
	// alive is that of the session.
	alive(bridge Claim) (bool, error)
	// workersChanged is that of the session.
	workersChanged()
}

// call is one statement on its way.
type call struct {
	text string
	args []driver.NamedValue
	// each gets every row, which is valid until it returns; it must not use the
	// session. nil is for statements without rows, or whose rows nobody reads.
	each func(*record) error
	// changes is how many rows the statement has to change; any other number
	// refuses the unit. -1 is any.
	changes int64
	// changed, if not nil, gets how many rows the statement has changed.
	changed *int64
	// key orders the statements that lock rows. Every writer locks the rows of
	// bridges first, then those of runs, then those of attempts, and of each the
	// smaller key first, so that no two wait for each other.
	key string
}

const selectAlive = `SELECT 1 FROM worker WHERE name = ? AND inc = ? AND dead = 0`

// alive reports whether owner's bridge was neither replaced nor declared dead.
// What was true once is true until the transaction ends. An engine may say yes
// before it knows, and refuse the unit afterwards.
func (s *session) alive(owner Claim) (bool, error) {
	return s.engine.alive(Claim{Worker: owner.Worker, Inc: owner.Inc})
}

// workersChanged is told by units that write the rows of bridges.
func (s *session) workersChanged() { s.engine.workersChanged() }

// at says which row, by its id, the following statements lock.
func (s *session) at(id string) { s.key = id }

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

// execBound is exec for arguments that were bound before.
func (s *session) execBound(text string, args []driver.NamedValue) (int64, error) {
	s.call = call{text: text, args: args, changes: -1, key: s.key}
	if err := s.engine.queue(&s.call); err != nil {
		return 0, err
	}
	return s.engine.wait()
}

// changesOne is execBound for a statement that usually changes one row, and says
// whether it does. An engine may say yes before it knows, and refuse the unit
// afterwards.
func (s *session) changesOne(text string, args []driver.NamedValue) (bool, error) {
	if s.engine.guesses() {
		return true, s.laterBound(1, text, args)
	}
	n, err := s.execBound(text, args)
	return n == 1, err
}

// later is exec for a statement that nothing in the unit waits for. It has to
// change that many rows, or the unit is refused; -1 is any number.
func (s *session) later(changes int64, text string, args ...any) error {
	s.args = bind(s.args[:0], args...)
	return s.laterBound(changes, text, s.args)
}

// laterBound is later for arguments that were bound before.
func (s *session) laterBound(changes int64, text string, args []driver.NamedValue) error {
	s.call = call{text: text, args: args, changes: changes, key: s.key}
	return s.engine.queue(&s.call)
}

// laterCounted is laterBound for a statement whose effect is known after wait.
func (s *session) laterCounted(changed *int64, text string, args []driver.NamedValue) error {
	s.call = call{text: text, args: args, changes: -1, changed: changed, key: s.key}
	return s.engine.queue(&s.call)
}

// laterQuery is query for a statement whose rows are known after wait only.
func (s *session) laterQuery(text string, each func(*record) error, args ...any) error {
	s.args = bind(s.args[:0], args...)
	return s.laterBoundQuery(text, each, s.args)
}

// laterBoundQuery is laterQuery for arguments that were bound before.
func (s *session) laterBoundQuery(text string, each func(*record) error, args []driver.NamedValue) error {
	s.call = call{text: text, args: args, each: each, changes: -1, key: s.key}
	return s.engine.queue(&s.call)
}

// wait returns when all statements have been executed.
func (s *session) wait() error {
	_, err := s.engine.wait()
	return err
}

// query runs a statement and calls each with every row, which is valid until
// each returns. each must not use the session.
func (s *session) query(text string, each func(*record) error, args ...any) error {
	if err := s.laterQuery(text, each, args...); err != nil {
		return err
	}
	return s.wait()
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

// numberParameters turns ? placeholders into $1, $2 and so on. No statement has a
// question mark elsewhere.
func numberParameters(query string) string {
	var b strings.Builder
	n := 0
	for i := range len(query) {
		if query[i] != '?' {
			b.WriteByte(query[i])
			continue
		}
		n++
		fmt.Fprintf(&b, "$%d", n)
	}
	return b.String()
}
