// Package logging makes the program's logger, through which no credential gets
// out: attributes are redacted by the name of their key at any depth, and by
// the values of the secrets that a [Redactor] was told (reliability: canaries).
//
// Concurrency: everything may be called from any goroutine.
package logging

import (
	"io"
	"log/slog"
)

// Format is the form of the lines.
type Format string

// The formats of setting log.format.
const (
	Text Format = "text"
	JSON Format = "json"
)

// MaxValue bounds one attribute's value, in bytes. What is longer is cut, and
// says so.
const MaxValue = 64 << 10

// Config is how a logger writes.
type Config struct {
	// Level is the least level that is written; nil is info.
	Level slog.Leveler
	// Format is JSON, or else Text.
	Format Format
	// Redactor knows the secrets. Nil: keys and forms only.
	Redactor *Redactor
	// AddSource adds the place of the call.
	AddSource bool
}

// New gives a logger that writes one line for each record to w, in one Write.
// Redacted are: everything under a key that names a credential (see
// [SensitiveKey]), in groups, structs, maps, slices and JSON texts too; what the
// redactor knows, wherever it stands in the line; "Bearer …", "Basic …" and
// passwords in URLs. While somebody cannot be reached, or what comes is not taken,
// warnings of that are counted rather than repeated.
func New(w io.Writer, cfg Config) *slog.Logger {
	r := cfg.Redactor
	if r == nil {
		r = NewRedactor()
	}
	opts := &slog.HandlerOptions{Level: cfg.Level, AddSource: cfg.AddSource, ReplaceAttr: r.replaceAttr}
	if cfg.Format == JSON {
		return slog.New(newRepeats(slog.NewJSONHandler(r.Writer(w), opts)))
	}
	return slog.New(newRepeats(slog.NewTextHandler(r.Writer(w), opts)))
}
