package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

const (
	insertLabel  = `INSERT INTO run_label (run_id, label, value, begun_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
	deleteLabels = `DELETE FROM run_label WHERE run_id = ?`
	setErrorText = `UPDATE run SET error_text = ? WHERE id = ?`
)

// maxErrorText bounds what is searched of a run's error, in bytes.
const maxErrorText = 4096

// runLook is how many runs a search looks at for one page.
const runLook = 20_000

// maxArms bounds the queries that one search is made of.
const maxArms = 16

// searchable writes what a run is found by besides its row: its labels, and the
// text of its error.
func searchable(s *session, r *Run) error {
	s.at(r.ID)
	for name, value := range r.Labels {
		if err := s.later(-1, insertLabel, r.ID, name, value, unixMicro(r.CreatedAt)); err != nil {
			return err
		}
	}
	return searchableError(s, r)
}

func searchableError(s *session, r *Run) error {
	if len(r.Error) == 0 {
		return nil
	}
	return s.later(-1, setErrorText, errorText(r.Error), r.ID)
}

// errorText gives the text that an error is found by.
func errorText(b []byte) any {
	var e parley.Error
	if json.Unmarshal(b, &e) != nil {
		return nil
	}
	t := strings.ToLower(string(e.Code) + ": " + e.Message)
	for len(t) > maxErrorText || !utf8.ValidString(t) {
		t = strings.ToValidUTF8(t[:min(len(t), maxErrorText)], "")
	}
	return text(t)
}

// runCondition gives what every way to list runs has in common.
func runCondition(q *parley.RunQuery) condition {
	var c condition
	if len(q.Status) > 0 {
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(q.Status)), ", ")
		args := make([]any, len(q.Status))
		for i, s := range q.Status {
			args[i] = string(s)
		}
		c.add(`status IN (`+marks+`)`, args...)
	}
	if q.Workflow != "" {
		c.add(`workflow IN (SELECT workflow FROM definition WHERE name = ? UNION SELECT ?)`, q.Workflow, q.Workflow)
	}
	if q.Parent != "" {
		c.add(`parent_run = ?`, q.Parent)
	}
	if q.Version != "" {
		c.add(`version = ?`, q.Version)
	}
	if q.DefinitionID != "" {
		c.add(`workflow IN (SELECT workflow FROM definition WHERE id = ?) AND definition_id = ?`, q.DefinitionID, q.DefinitionID)
	}
	for _, name := range sortedNames(q.Labels) {
		c.add(`EXISTS (SELECT 1 FROM run_label WHERE run_id = id AND label = ? AND value = ?)`, name, q.Labels[name])
	}
	if !q.CreatedAfter.IsZero() {
		c.add(`created_at > ?`, q.CreatedAfter.UnixMicro())
	}
	if !q.CreatedBefore.IsZero() {
		c.add(`created_at < ?`, q.CreatedBefore.UnixMicro())
	}
	if !q.EndedAfter.IsZero() {
		c.add(`ended_at > ?`, q.EndedAfter.UnixMicro())
	}
	if !q.EndedBefore.IsZero() {
		c.add(`ended_at < ?`, q.EndedBefore.UnixMicro())
	}
	if q.Paused {
		c.add(`paused = 1`)
	}
	if q.NotRetried {
		c.add(`NOT EXISTS (SELECT 1 FROM run AS again WHERE again.retried_from = run.id)`)
	}
	if !q.Hidden {
		c.add(`hidden = 0`)
	}
	return c
}

func sortedNames(labels map[string]string) []string {
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// textCondition holds for runs with these words in their id, their workflow's or
// its name, or their error; in upper or lower case.
func textCondition(words string) (part string, args []any) {
	return containing(words, `lower(id)`, `lower(workflow)`, `lower(name)`, `error_text`)
}

// containing holds for rows with these words in one of the columns, which are in
// lower case: as Go does it, or as the database does, which may leave all letters
// but those of ASCII as they are.
func containing(words string, columns ...string) (part string, args []any) {
	ascii := func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	forms := []string{strings.ToLower(words), strings.Map(ascii, words), strings.Map(ascii, strings.ToUpper(words))}
	slices.Sort(forms)
	var parts []string
	for _, form := range slices.Compact(forms) {
		like := `%` + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(form) + `%`
		for _, column := range columns {
			parts = append(parts, column+` LIKE ? ESCAPE '\'`)
			args = append(args, like)
		}
	}
	return `(` + strings.Join(parts, ` OR `) + `)`, args
}

// arm is one query of those that a search consists of: its rows come in order from
// an index.
type arm struct {
	from string
	// at and id are the columns of the order.
	at, id string
	where  condition
}

// SearchRuns gives at most limit (1 to 500) of the runs that q selects, newest
// first or as q says, from after q.After on, and where the next page begins; nil
// is the end. New runs don't change the pages behind the first. q.SortBy and
// q.Page are ignored. For a text, a version or the time of the end it looks at 20,000
// runs for each page, so one may be short, or empty, and not the last.
func (db *DB) SearchRuns(ctx context.Context, q parley.RunQuery, limit int) (runs []Run, next *parley.RunMark, err error) {
	limit = min(max(limit, 1), 500)
	f, err := db.searchOf(ctx, &q, limit)
	if err != nil {
		return nil, nil, err
	}
	each := func(r *record) error {
		run, err := listedRun(r)
		runs = append(runs, run)
		return err
	}
	if f.last == "" {
		err = db.readVaried(ctx, f.query, each, f.args...)
	} else {
		next, err = db.searchLooked(ctx, &f, each, func() bool { return len(runs) <= limit })
	}
	if err != nil {
		return nil, nil, err
	}
	if len(runs) > limit {
		runs = runs[:limit]
		next = &parley.RunMark{ID: runs[limit-1].ID, At: runs[limit-1].CreatedAt}
	}
	return runs, next, nil
}

// searchLooked reads what is found among the runs that are looked at, and, if that is
// all of it, the last of them, nil if there are fewer: of one state of the database. A run
// that came or went in between would have the next page begin elsewhere than this one ends.
func (db *DB) searchLooked(ctx context.Context, f *search, each func(*record) error, all func() bool) (last *parley.RunMark, err error) {
	err = db.snapshot(ctx, func(tx reader) error {
		if err := db.readOn(ctx, tx, f.query, each, f.args...); err != nil || !all() {
			return err
		}
		return db.readOn(ctx, tx, f.last, func(r *record) error {
			last = &parley.RunMark{ID: r.str(), At: r.time()}
			return r.err
		}, f.lastArgs...)
	})
	return last, err
}

// search is what is asked of the database for one page.
type search struct {
	query string
	args  []any
	// last is the last run that is looked at, if there are so many; "" if as many
	// are looked at as it takes.
	last     string
	lastArgs []any
}

// searchOf makes the texts of a search. What an index can find comes in order; of
// that, so many are looked at for the rest of what q asks for.
func (db *DB) searchOf(ctx context.Context, q *parley.RunQuery, limit int) (f search, err error) {
	found, looked := *q, parley.RunQuery{
		Version: q.Version, DefinitionID: q.DefinitionID, EndedAfter: q.EndedAfter, EndedBefore: q.EndedBefore, Hidden: true,
	}
	found.Version, found.DefinitionID, found.EndedAfter, found.EndedBefore = "", "", time.Time{}, time.Time{}
	// What has ended before a time was created before it.
	if before := q.EndedBefore; !before.IsZero() && (q.CreatedBefore.IsZero() || before.Before(q.CreatedBefore)) {
		found.CreatedBefore = before
	}
	where := runCondition(&looked)
	if q.Text != "" {
		part, more := textCondition(q.Text)
		where.add(part, more...)
	}
	arms, err := db.searchArms(ctx, &found)
	if err != nil {
		return f, err
	}
	if len(where.parts) == 0 {
		f.query, f.args = searchQuery(arms, q, limit+1)
		return f, nil
	}
	inner, args := searchQuery(arms, q, runLook)
	f.query = `SELECT * FROM (` + inner + `) AS seen` + where.String() + outerOrder(q.Ascending) + ` LIMIT ?`
	f.args = append(append(slices.Clip(args), where.args...), int64(limit+1))
	f.last = `SELECT id, created_at FROM (` + inner + `) AS seen` + outerOrder(q.Ascending) + ` LIMIT 1 OFFSET ?`
	f.lastArgs = append(slices.Clip(args), int64(runLook-1))
	return f, nil
}

func outerOrder(ascending bool) string {
	if ascending {
		return ` ORDER BY created_at ASC, id ASC`
	}
	return ` ORDER BY created_at DESC, id DESC`
}

// searchArms chooses the indexes of a search: that of the labels, of the status
// where few runs have it, of the workflow, or of the time.
func (db *DB) searchArms(ctx context.Context, q *parley.RunQuery) ([]arm, error) {
	rest := *q
	plain := arm{`run`, `created_at`, `id`, runCondition(q)}
	switch n := len(q.Status); {
	case q.Parent != "": // few, and they have an index
		return []arm{plain}, nil
	case len(q.Labels) > 0:
		name := sortedNames(q.Labels)[0]
		rest.Labels = maps.Clone(q.Labels)
		delete(rest.Labels, name)
		a := arm{`run_label JOIN run ON id = run_id`, `begun_at`, `run_id`, runCondition(&rest)}
		a.where.add(`label = ? AND value = ?`, name, q.Labels[name])
		if !q.CreatedAfter.IsZero() {
			a.where.add(`begun_at > ?`, q.CreatedAfter.UnixMicro())
		}
		if !q.CreatedBefore.IsZero() {
			a.where.add(`begun_at < ?`, q.CreatedBefore.UnixMicro())
		}
		return []arm{a}, nil
	case q.Paused:
		plain.where.add(`ended_at IS NULL`)
	case n > 0 && n <= maxArms && !slices.Contains(q.Status, parley.RunCompleted):
		rest.Status = nil
		return statusArms(q.Status, &rest), nil
	case q.Workflow != "":
		rest.Workflow = ""
		arms, err := db.workflowArms(ctx, q.Workflow, &rest)
		if len(arms) <= maxArms {
			return arms, err
		}
	}
	return []arm{plain}, nil
}

// statusArms looks for each status where the runs of that status are.
func statusArms(list []parley.RunStatus, rest *parley.RunQuery) []arm {
	var arms []arm
	for i, s := range list {
		if slices.Contains(list[:i], s) {
			continue
		}
		c := runCondition(rest)
		if s.Terminal() {
			c.add(`status <> 'COMPLETED' AND ended_at IS NOT NULL`)
		} else {
			c.add(`ended_at IS NULL`)
		}
		c.add(`status = ?`, string(s))
		arms = append(arms, arm{`run`, `created_at`, `id`, c})
	}
	return arms
}

// workflowArms looks for each workflow that is meant by an id or a name.
func (db *DB) workflowArms(ctx context.Context, ref string, rest *parley.RunQuery) ([]arm, error) {
	list := []string{ref}
	err := db.read(ctx, `SELECT DISTINCT workflow FROM definition WHERE name = ? AND workflow <> ? ORDER BY workflow LIMIT ?`,
		func(r *record) error { list = append(list, r.str()); return nil }, ref, ref, int64(maxArms))
	arms := make([]arm, len(list))
	for i, workflow := range list {
		c := runCondition(rest)
		c.add(`workflow = ?`, workflow)
		arms[i] = arm{`run`, `created_at`, `id`, c}
	}
	return arms, err
}

// searchQuery gives the text that lists the first n runs of all arms, from q.After
// on.
func searchQuery(arms []arm, q *parley.RunQuery, n int) (query string, args []any) {
	direction, beyond := `DESC`, `<`
	if q.Ascending {
		direction, beyond = `ASC`, `>`
	}
	texts := make([]string, len(arms))
	for i, a := range arms {
		if q.After != nil {
			a.where.add(fmt.Sprintf(`(%s, %s) %s (?, ?)`, a.at, a.id, beyond), unixMicro(q.After.At), q.After.ID)
		}
		texts[i] = fmt.Sprintf(`SELECT %s, error_text FROM %s%s ORDER BY %s %s, %s %s LIMIT ?`, runColumns, a.from, a.where.String(), a.at, direction, a.id, direction)
		args = append(append(args, a.where.args...), int64(n))
	}
	if len(texts) == 1 {
		return texts[0], args
	}
	query = `SELECT * FROM (SELECT * FROM (` + strings.Join(texts, `) AS x UNION ALL SELECT * FROM (`) + `) AS x) AS arms` + outerOrder(q.Ascending) + ` LIMIT ?`
	return query, append(args, int64(n))
}
