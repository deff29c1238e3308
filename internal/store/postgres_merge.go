package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Calls of the same statement that follow one another are sent as one, with an
// array for each parameter. It locks and changes the same rows in the same order;
// the server has a third of the work.

// maxMerged bounds the calls of one statement. The server's plan begins with them
// and looks each row up: the connection has other joins switched off.
const maxMerged = 64

// maxMergedBytes is how large a merged statement may be, about: it is copied.
const maxMergedBytes = 1 << 20

// pgStep is what is sent as one statement: one call, or several of one statement.
type pgStep struct {
	st    *pgStatement
	calls []*pgCall
}

// steps merges the calls of a batch.
func (l *pgLink) steps(batch []*pgCall) ([]pgStep, error) {
	steps := make([]pgStep, 0, len(batch))
	for len(batch) > 0 {
		n := mergeable(batch)
		step := pgStep{st: batch[0].st, calls: batch[:n]}
		if n > 1 {
			many, err := l.many(batch[0])
			if err != nil {
				return nil, err
			}
			if many == nil {
				step.calls = batch[:1]
			} else {
				step.st = many
			}
		}
		steps = append(steps, step)
		batch = batch[len(step.calls):]
	}
	return steps, nil
}

// mergeable is how many of the first calls may be one statement: each of them is
// about a row of its own.
func mergeable(batch []*pgCall) int {
	first := batch[0]
	if first.st.merged == "" {
		return 1
	}
	n := 1
	seen := map[string]bool{string(first.args[0]): true}
	for size := sizeOfArgs(first); n < min(len(batch), maxMerged); n++ {
		c := batch[n]
		if size += sizeOfArgs(c); size > maxMergedBytes {
			break
		}
		if c.st != first.st || c.key == batch[n-1].key || first.st.returns && seen[string(c.args[0])] {
			break
		}
		seen[string(c.args[0])] = true
	}
	return n
}

func sizeOfArgs(c *pgCall) (n int) {
	for _, a := range c.args {
		n += len(a)
	}
	return n
}

// many gives the statement that is several calls at once.
func (l *pgLink) many(c *pgCall) (*pgStatement, error) {
	st := c.st
	if st.many == nil {
		many, err := l.prepareRaw(st.merged)
		if err != nil {
			return nil, err
		}
		st.many = many
	}
	return st.many, nil
}

// mergedText gives the statement that does for each element of its arrays what
// text does, or "" if there is none. An update returns the numbers of the elements
// that have changed a row, before what text returns, if anything; byColumn an
// insertion returns its first column, which is also the first argument. An
// insertion of all or none returns nothing.
func mergedText(text string, types []uint32) (merged string, byColumn bool) {
	names := make([]string, len(types))
	arrays := make([]string, len(types))
	for i, oid := range types {
		name := map[uint32]string{pgtype.Int8OID: "bigint", pgtype.TextOID: "text", pgtype.ByteaOID: "bytea"}[oid]
		if name == "" {
			return "", false
		}
		names[i], arrays[i] = fmt.Sprintf("p%d", i+1), fmt.Sprintf("$%d::%s[]", i+1, name)
	}
	source := " FROM unnest(" + strings.Join(arrays, ", ") + ") WITH ORDINALITY AS v(" + strings.Join(names, ", ") + ", ord)"
	n := 0
	var b strings.Builder
	for i := range len(text) {
		if text[i] == '?' {
			b.WriteString("v." + names[n])
			n++
			continue
		}
		b.WriteByte(text[i])
	}
	switch {
	case n == 0:
		return "", false
	case strings.HasPrefix(text, "UPDATE "):
		head, tail, found := strings.Cut(b.String(), " WHERE id = v.")
		if !found || strings.Contains(head, "(SELECT") {
			return "", false
		}
		tail, columns, returns := strings.Cut(tail, " RETURNING ")
		if returns {
			columns = ", " + columns
		}
		return head + source + " WHERE id = v." + tail + " RETURNING v.ord" + columns, false
	case strings.HasPrefix(text, "INSERT "):
		values := " VALUES (" + strings.TrimSuffix(strings.Repeat("?, ", n), ", ") + ")"
		columns, rest, found := strings.Cut(text, values)
		_, first, _ := strings.Cut(columns, "(")
		first, _, _ = strings.Cut(first, ",")
		if !found || strings.Contains(rest, "?") || strings.Contains(rest, "RETURNING") {
			return "", false
		}
		merged = columns + " SELECT v." + strings.Join(names, ", v.") + source + rest
		if rest == "" {
			return merged, false
		}
		return merged + " RETURNING " + first, true
	}
	return "", false
}

// send queues the step.
func (s *pgStep) send(p *pgconn.Pipeline) {
	args := s.calls[0].args
	if len(s.calls) > 1 {
		args = make([][]byte, len(args))
		for i := range args {
			args[i] = s.array(i)
		}
	}
	if len(s.st.Fields) == 0 {
		p.SendQueryPrepared(s.st.Name, args, s.st.formats, nil)
		return
	}
	p.SendQueryStatement(s.st.StatementDescription, args, s.st.formats, []int16{pgtype.BinaryFormatCode})
}

// array is parameter i of all calls, in the binary form of an array.
func (s *pgStep) array(i int) []byte {
	size, nulls := 20, uint32(0)
	for _, c := range s.calls {
		size += 4 + len(c.args[i])
		if c.args[i] == nil {
			nulls = 1
		}
	}
	b := make([]byte, 0, size)
	b = binary.BigEndian.AppendUint32(b, 1) // dimensions
	b = binary.BigEndian.AppendUint32(b, nulls)
	b = binary.BigEndian.AppendUint32(b, s.calls[0].st.ParamOIDs[i])
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.calls)))
	b = binary.BigEndian.AppendUint32(b, 1) // the first index
	for _, c := range s.calls {
		if c.args[i] == nil {
			b = binary.BigEndian.AppendUint32(b, 0xffffffff)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(c.args[i])))
		b = append(b, c.args[i]...)
	}
	return b
}

// receive reads the answer to the step.
func (s *pgStep) receive(g *pgGroup, p *pgconn.Pipeline) error {
	err := s.receiveAll(g, p)
	for _, c := range s.calls {
		if c.call.changed != nil {
			*c.call.changed = c.changed
		}
	}
	return err
}

func (s *pgStep) receiveAll(g *pgGroup, p *pgconn.Pipeline) (err error) {
	if len(s.calls) == 1 {
		c := s.calls[0]
		c.changed, err = g.result(p, c)
		return err
	}
	whole := pgCall{call: call{changes: -1, each: func(r *record) error {
		var i int
		if s.calls[0].st.returns {
			id := postgresText(r.str())
			i = slices.IndexFunc(s.calls, func(c *pgCall) bool { return string(c.args[0]) == id })
		} else {
			i = int(r.int()) - 1
		}
		if i < 0 || i >= len(s.calls) {
			return fmt.Errorf("a statement has returned %v", r.values[0])
		}
		s.calls[i].changed++
		if each := s.calls[i].each; each != nil {
			return each(r)
		}
		return nil
	}}}
	n, err := g.result(p, &whole)
	if err != nil {
		return err
	}
	if len(s.st.Fields) == 0 {
		// All of them or none: without ON CONFLICT an insertion does not pass by.
		if n != int64(len(s.calls)) {
			return errLate
		}
		return nil
	}
	if slices.ContainsFunc(s.calls, func(c *pgCall) bool { return c.changes >= 0 && c.changes != c.changed }) {
		return errLate
	}
	return nil
}
