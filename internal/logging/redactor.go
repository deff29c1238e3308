package logging

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-project/parley"
)

const (
	redacted = "[redacted]"
	// minKnown is the least length of a value that is looked for, in bytes:
	// shorter ones stand in many a harmless text.
	minKnown = 6
	// maxKnown bounds the secrets that are looked for, beside those that are kept; the
	// oldest are forgotten first.
	maxKnown = 10_000
)

// Redactor knows secrets by their values and keeps them out of texts. Its
// methods may be called concurrently.
type Redactor struct {
	mu    sync.RWMutex
	known map[string]bool // guarded by mu
	order []string        // those of known that may be forgotten, oldest first; guarded by mu
	table *table          // guarded by mu
}

// NewRedactor gives a redactor that knows no secret yet.
func NewRedactor() *Redactor {
	return &Redactor{known: map[string]bool{}, table: newTable()}
}

// Add makes s known: from now on its value, also escaped for JSON, Go or URLs,
// in base64 or hexadecimal, is redacted. A value of less than 6 bytes is only
// protected by the key it stands under. A value that is known costs next to
// nothing.
func (r *Redactor) Add(s parley.Secret) {
	value, ok := knowable(s)
	if !ok {
		return
	}
	r.mu.RLock()
	known := r.known[value]
	r.mu.RUnlock()
	if known {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[value] {
		return
	}
	if len(r.order) == maxKnown {
		r.table.remove(r.order[0])
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
	r.known[value] = true
	r.order = append(r.order, value)
	r.table.add(value)
}

// Keep is Add for one of the few secrets of the configuration: it is never forgotten,
// however many others, such as tokens of an hour, come after it.
func (r *Redactor) Keep(s parley.Secret) {
	value, ok := knowable(s)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known[value] {
		r.known[value] = true
		r.table.add(value)
	}
	r.order = slices.DeleteFunc(r.order, func(other string) bool { return other == value })
}

// knowable gives the value of a secret that can be looked for.
func knowable(s parley.Secret) (value string, ok bool) {
	value = string(s.Reveal())
	return value, len(value) >= minKnown && value != redacted
}

func scrubbed[S ~string | ~[]byte](r *Redactor, s S, limit int) ([]byte, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return scrub(r.table, s, limit)
}

// String gives s without credentials. What has none is returned as it is.
func (r *Redactor) String(s string) string {
	if out, changed := scrubbed(r, s, len(s)*(1+len(redacted))); changed {
		return string(out)
	}
	return s
}

// cut is String for at most MaxValue bytes. A secret that begins before the end
// is seen whole, so that no part of it is left.
func (r *Redactor) cut(s string) string {
	out, changed := scrubbed(r, s, MaxValue)
	if !changed {
		out = []byte(s[:min(len(s), MaxValue)])
	}
	return strings.ToValidUTF8(string(out), "") + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

// Writer gives a writer that redacts each Write by itself and hands it on in
// one Write: w must get whole lines. It reports len(p) when all was written.
func (r *Redactor) Writer(w io.Writer) io.Writer { return lineWriter{r, w} }

type lineWriter struct {
	r *Redactor
	w io.Writer
}

func (l lineWriter) Write(p []byte) (int, error) {
	out, changed := scrubbed(l.r, p, len(p)*(1+len(redacted)))
	if !changed {
		return l.w.Write(p)
	}
	if _, err := l.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// table finds known values in all their forms.
type table struct {
	// first says what may begin at a byte: isSign, isHead or neither, which is
	// most of them.
	first [256]uint8
	// bits has a bit for the hash of the first 4 bytes of each form. Bits of
	// what was removed stay, which only costs a look at by.
	bits [1 << 10]uint64
	// by holds the forms by their first 4 bytes, in order: tokens begin alike, and
	// what is looked for must not cost more with each of them.
	by map[uint32][]string
}

const (
	isSign = 1 << iota // formAt is to be asked
	isHead             // a form begins with it
)

func newTable() *table {
	t := &table{by: map[uint32][]string{}}
	for _, sign := range []byte(signs) {
		t.first[sign] = isSign
	}
	return t
}

func (t *table) add(value string) {
	for _, form := range forms(value) {
		t.first[form[0]] |= isHead
		at := head(form, 0)
		i, _ := slices.BinarySearch(t.by[at], form)
		t.by[at] = slices.Insert(t.by[at], i, form)
		h := hash(at)
		t.bits[h>>6] |= 1 << (h & 63)
	}
}

func (t *table) remove(value string) {
	for _, form := range forms(value) {
		at := head(form, 0)
		if i, ok := slices.BinarySearch(t.by[at], form); ok {
			t.by[at] = slices.Delete(t.by[at], i, i+1)
		}
		if len(t.by[at]) == 0 {
			delete(t.by, at)
		}
	}
}

func head[S ~string | ~[]byte](s S, i int) uint32 {
	return uint32(s[i]) | uint32(s[i+1])<<8 | uint32(s[i+2])<<16 | uint32(s[i+3])<<24
}

func hash(at uint32) uint32 { return at * 2654435761 >> 16 }

// forms gives value as it may stand in a text, each form once: as it is,
// encoded, and escaped up to twice, as JSON or Go in a string is.
func forms(value string) []string {
	all := []string{value}
	add := func(s string) bool {
		if slices.Contains(all, s) {
			return false
		}
		all = append(all, s)
		return true
	}
	add(url.QueryEscape(value))
	add(url.PathEscape(value))
	add(hex.EncodeToString([]byte(value)))
	add(base64.RawStdEncoding.EncodeToString([]byte(value)))
	add(base64.RawURLEncoding.EncodeToString([]byte(value)))
	level := []string{value}
	for range 2 {
		var next []string
		for _, s := range level {
			for _, e := range []string{jsonEscape(s, true), jsonEscape(s, false), inner(strconv.Quote(s))} {
				if add(e) {
					next = append(next, e)
				}
			}
		}
		level = next
	}
	return all
}

func jsonEscape(s string, html bool) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(html)
	_ = enc.Encode(s) // a string always can be
	return inner(strings.TrimSuffix(out.String(), "\n"))
}

// inner is s without its quotes.
func inner(s string) string { return s[1 : len(s)-1] }

// knownAt gives the length of the longest known value that begins at s[i], or 0.
func knownAt[S ~string | ~[]byte](t *table, s S, i int) int {
	if i+minKnown > len(s) {
		return 0
	}
	at := head(s, i)
	if h := hash(at); t.bits[h>>6]&(1<<(h&63)) == 0 {
		return 0
	}
	rest := s[i:]
	for values := t.by[at]; ; {
		n := notBeyond(values, rest)
		if n == 0 {
			return 0
		}
		last := values[n-1]
		same := alike(last, rest)
		if same == len(last) {
			return same
		}
		// A longer one that rest begins with would stand between last and rest.
		values, rest = values[:n-1], rest[:same]
	}
}

// notBeyond gives how many of the values, which are in order, are not behind rest.
func notBeyond[S ~string | ~[]byte](values []string, rest S) int {
	low, high := 0, len(values)
	for low < high {
		mid := low + (high-low)/2
		if values[mid] <= string(rest[:min(len(rest), len(values[mid]))]) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// alike gives how many bytes value and rest have in common at their beginning.
func alike[S ~string | ~[]byte](value string, rest S) int {
	n := 0
	for n < len(value) && n < len(rest) && value[n] == rest[n] {
		n++
	}
	return n
}
