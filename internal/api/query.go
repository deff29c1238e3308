package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// maxPage keeps page × page_size far from any overflow.
const maxPage = 1_000_000_000

// query reads the parameters of a request and collects what is wrong. A
// parameter without a value is absent.
type query struct {
	values url.Values
	found  []finding
}

// queryOf reads the query of a request. What cannot be read of it is a finding, since
// without a filter that was dropped a list would be another one than was asked for.
func queryOf(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		const text = "the query of the URL cannot be read: a % is written as %25 there, and a ; as %3B"
		q.found = append(q.found, finding{Code: "syntax", Detail: text, Field: "query", Message: text, Type: "value_error"})
	}
	return q
}

func (q *query) get(name string) string { return q.values.Get(name) }

func (q *query) wrong(name, kind, text string) {
	q.found = append(q.found, finding{
		Path: name, Code: "value", Detail: text, Field: "query." + name, Message: text, Type: kind,
	})
}

func (q *query) integer(name string, def, least, most int64) int64 {
	v := q.get(name)
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil:
		q.wrong(name, "int_parsing", "must be a whole number")
	case n < least:
		q.wrong(name, "greater_than_equal", "must be at least "+strconv.FormatInt(least, 10))
	case n > most:
		q.wrong(name, "less_than_equal", "must be at most "+strconv.FormatInt(most, 10))
	default:
		return n
	}
	return def
}

func (q *query) boolean(name string) bool {
	v := q.get(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(strings.ToLower(v))
	if err != nil {
		q.wrong(name, "bool_parsing", "must be true or false")
	}
	return b
}

// when reads an instant: RFC 3339, or the same without a zone, which is UTC.
func (q *query) when(name string) time.Time {
	v := q.get(name)
	if v == "" {
		return time.Time{}
	}
	t, ok := parseTime(v)
	if !ok {
		q.wrong(name, "datetime_from_date_parsing", "must be a time such as 2026-11-21T10:04:05Z")
	}
	return t
}

// parseTime reads a time in one of several spellings. The first instant of the year 1,
// which other languages have for the earliest time there is, is a time like any other: it
// is moved a little, since filters take the zero value for none.
func parseTime(v string) (time.Time, bool) {
	// An unescaped "+02:00" arrives with a space for the plus.
	if n := len(v); n > 19 && v[n-6] == ' ' && v[n-3] == ':' {
		v = v[:n-6] + "+" + v[n-5:]
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04Z07:00", "2006-01-02T15:04",
		"2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", time.DateOnly,
	} {
		if t, err := time.Parse(layout, v); err == nil {
			if t.IsZero() {
				t = t.Add(time.Microsecond)
			}
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// word reads one of few words.
func (q *query) word(name string, words ...string) string {
	v := q.get(name)
	if v != "" && !slices.Contains(words, v) {
		q.wrong(name, "enum", "must be "+strings.Join(words[:len(words)-1], ", ")+" or "+words[len(words)-1]+", not "+clip(v))
	}
	return v
}

// words reads a text that rows are looked through for. A longer one may be more than the
// database takes, and SQLite ends one with its first NUL: so it would find all of them.
func (q *query) words(name string) string {
	v := q.get(name)
	switch {
	case utf8.RuneCountInString(v) > maxText:
		q.wrong(name, "string_too_long", fmt.Sprintf("must have at most %d characters", maxText))
	case strings.ContainsFunc(v, isControl):
		q.wrong(name, "value_error", "must not contain control characters")
	}
	return v
}

// page reads page (from 1) and page_size (1 to 100, default 20).
func (q *query) page() pageRequest {
	p := pageRequest{number: int(q.integer("page", 1, 1, maxPage)), size: int(q.integer("page_size", 20, 1, 100))}
	return p
}

// done gives the refusal for all that was wrong.
func (q *query) done() error {
	if len(q.found) == 0 {
		return nil
	}
	return invalid(q.found)
}

// sortBy gives one of the names, or "" (the default order) for any other.
func (q *query) sortBy(names map[string]string) string { return names[q.get("sort_by")] }

func (q *query) ascending() bool { return strings.EqualFold(q.get("sort_order"), "asc") }

type pageRequest struct{ number, size int }

func (p pageRequest) page() parley.Page {
	return parley.Page{Offset: (p.number - 1) * p.size, Limit: p.size}
}

// pageOf is one page of a list; total is the true number of all that match.
type pageOf[T any] struct {
	Items      []T `json:"items" nullable:"false"`
	Total      int `json:"total"`
	Page       int `json:"page"`
	PageSize   int `json:"page_size"`
	TotalPages int `json:"total_pages"`
}

func makePage[T any](items []T, total int, p pageRequest) pageOf[T] {
	if items == nil {
		items = []T{}
	}
	return pageOf[T]{Items: items, Total: total, Page: p.number, PageSize: p.size, TotalPages: (total + p.size - 1) / p.size}
}

// cutPage gives one page of all there are, each as f shows it.
func cutPage[A, B any](all []A, p pageRequest, f func(A) B) pageOf[B] {
	from := min(p.page().Offset, len(all))
	return makePage(mapped(all[from:min(from+p.size, len(all))], f), len(all), p)
}

// mapped applies f to every item.
func mapped[A, B any](in []A, f func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, v := range in {
		out = append(out, f(v))
	}
	return out
}
