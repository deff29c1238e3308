package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

func newArchiveCommand(a *app) *cobra.Command {
	cmd := newGroup("archive", "Take runs that are over out of a server, and bring them into one", `
  parley archive export runs.ndjson.zst --ended-before 720h
  parley archive import runs.ndjson.zst`)
	cmd.AddCommand(newArchiveExport(a), newArchiveImport(a))
	return cmd
}

// exportFlags are those of `parley archive export`.
type exportFlags struct {
	runFilter
	cursor string
}

func newArchiveExport(a *app) *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use: "export FILE|-", Short: "Write runs that are over into a file, each on a line",
		Long: `Writes every run that is over and that the flags select, oldest first: a JSON object on each line with all of the run, its history, its
attempts with what agents answered, and the document of its workflow. A FILE that ends in .gz or .zst is compressed; - is standard output.
Nothing is removed. Runs that are under way are left out. So are those that the server cannot read: they are named, and the exit code is 1.`,
		Example: `  parley archive export runs.ndjson.zst
  parley archive export - --workflow hello --status FAILED | jq .run.id`,
		Args: need("FILE|-"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.exportRuns(cmd.Context(), args[0], &f) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.cursor, "cursor", "", "go on with FILE where an export has broken off, which says the cursor")
	return cmd
}

// exportPage is how many runs are asked for at a time.
const exportPage = 100

// exported is what `parley archive export` writes for programs.
type exported struct {
	File string `json:"file"`
	Runs int    `json:"runs"`
	// Unreadable are runs that the server cannot read, and that are not in the file.
	Unreadable []string `json:"unreadable,omitempty"`
}

func (a *app) exportRuns(ctx context.Context, name string, f *exportFlags) (err error) {
	if err := f.read(a); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	out, err := a.createLines(name, f.cursor != "")
	if err != nil {
		return err
	}
	x := exporter{client: c, query: f.query, out: out, cursor: f.cursor}
	err = x.run(ctx)
	closed := out.Close()
	if err = errors.Join(err, closed); err != nil {
		switch {
		case x.cursor == "" && name == "-": // nothing to go on from
		case x.cursor == "":
			err = errors.Join(err, os.Remove(a.path(name))) // it is new, and holds no page
		case compressed(name) && (x.full || closed != nil):
			// What is written behind half a block is lost to every reader.
			a.note("%s ends within a compressed block and cannot be gone on with: remove it, and export anew", name)
		default:
			a.note("%s %s written; to go on, repeat the command with --cursor %s", plural(x.runs, "run"), wasWere(x.runs), x.cursor)
		}
		return err
	}
	if name == "-" {
		a.note("%s written", plural(x.runs, "run"))
	} else if err := a.show(exported{File: name, Runs: x.runs, Unreadable: x.unread}, func(s *sheet) {
		s.fields([]field{{"File", cell{text: name}}, {"Runs", cell{text: fmt.Sprint(x.runs)}}})
	}); err != nil {
		return err
	}
	if n := len(x.unread); n > 0 {
		return incompletef("the server cannot read %s, and so they are left out: %s; its log says why",
			plural(n, "run"), strings.Join(x.unread[:min(n, mostNamed)], ", ")+map[bool]string{true: " …"}[n > mostNamed])
	}
	return nil
}

// mostNamed is how many runs an error names.
const mostNamed = 10

// exporter writes page after page.
type exporter struct {
	client *client.Client
	query  client.RunQuery
	out    io.Writer
	// cursor is that of the page that is being written.
	cursor string
	runs   int
	// unread are runs that the server cannot read.
	unread []string
	// full: the file takes no more.
	full bool
}

// exportTries is how often a page is asked for whose connection breaks.
const exportTries = 5

func (x *exporter) run(ctx context.Context) error {
	for {
		next, err := x.page(ctx)
		if err != nil || next == "" {
			return err
		}
		x.cursor = next
	}
}

// page writes one page. Of one that broke off, what was written is not written again.
func (x *exporter) page(ctx context.Context) (next string, err error) {
	written := map[[sha256.Size]byte]bool{}
	for try := 1; ; try++ {
		next, err = x.client.ExportRuns(ctx, x.query, x.cursor, exportPage, func(line []byte) error {
			sum := sha256.Sum256(line)
			if written[sum] {
				return nil
			}
			if run, ok := client.UnreadableRun(line); ok {
				written[sum], x.unread = true, append(x.unread, run)
				return nil
			}
			if _, err := x.out.Write(line); err != nil {
				x.full = true
				return err
			}
			written[sum] = true
			x.runs++
			return nil
		})
		if !errors.Is(err, client.ErrUnreachable) || try >= exportTries || x.runs == 0 {
			return next, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(time.Duration(try) * 500 * time.Millisecond):
		}
	}
}

// createLines opens a file for lines, which must not be there unless it is gone on
// with; "-" is standard output.
func (a *app) createLines(name string, further bool) (io.WriteCloser, error) {
	if name == "-" {
		return &lineFile{Writer: a.stdout}, nil
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if further {
		mode = os.O_RDWR | os.O_APPEND
	}
	f, err := os.OpenFile(a.path(name), mode, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, &failure{exit: exitConflict, code: parley.CodeConflict, text: name + " is there already", hint: "give the archive another name"}
	}
	if err != nil {
		return nil, usagef("%s cannot be written: %v", name, err)
	}
	out := &lineFile{Writer: f, ends: []func() error{f.Sync, f.Close}}
	switch {
	case further && !compressed(name):
		if err := cutHalfLine(f); err != nil {
			return nil, errors.Join(usagef("%s cannot be gone on with: %v", name, err), f.Close())
		}
	case strings.HasSuffix(name, ".gz"):
		z := gzip.NewWriter(f)
		out.Writer, out.ends = z, append([]func() error{z.Close}, out.ends...)
	case strings.HasSuffix(name, ".zst"):
		z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		out.Writer, out.ends = z, append([]func() error{z.Close}, out.ends...)
	}
	return out, nil
}

// compressed reports whether a file of that name is.
func compressed(name string) bool {
	return strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".zst")
}

// cutHalfLine takes the last line off a file if it has no end: a disk was full.
func cutHalfLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	part := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		begin := max(end-int64(len(part)), 0)
		n, err := f.ReadAt(part[:end-begin], begin)
		if err != nil {
			return err
		}
		if i := bytes.LastIndexByte(part[:n], '\n'); i >= 0 {
			return f.Truncate(begin + int64(i) + 1)
		}
		end = begin
	}
	return nil // there is no line at all: it is none of ours
}

// lineFile is a file that may be compressed.
type lineFile struct {
	io.Writer
	// ends are called in turn, all of them.
	ends []func() error
}

// Close implements io.Closer.
func (f *lineFile) Close() error {
	var errs []error
	for _, end := range f.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

func newArchiveImport(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "import FILE|-", Short: "Bring the runs of an archive into a server",
		Long: `Brings runs that an export has written, or a server that removes old runs (retention.archive), into a server. They keep their ids. A run that
is there already with the same content is left alone; one with other content is named, and nothing is overwritten. The versions of workflows
that they are on come along if they are missing, as deleted ones: nothing starts them until they are deployed.

A line that is refused is named as FILE:LINE, and the others go on. The exit code is 2 if a line was no whole run, 4 if one was in conflict with
what is there.`,
		Example: "  parley archive import runs.ndjson.zst",
		Args:    need("FILE|-"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.importRuns(cmd.Context(), args[0]) },
	}
}

const (
	// importLines and importBytes bound what is sent at a time, unless one line is
	// longer.
	importLines = 200
	importBytes = 4 << 20
)

func (a *app) importRuns(ctx context.Context, name string) (err error) {
	c, err := a.connect()
	if err != nil {
		return err
	}
	in, err := a.openLines(name)
	if err != nil {
		return err
	}
	im := importer{app: a, client: c, name: name}
	if name == "-" {
		im.name = "standard input"
	}
	im.report.Refused = []parley.ArchivedRun{}
	err = errors.Join(im.run(ctx, in), in.Close())
	if err != nil {
		if n := im.report.Added + im.report.Same; n > 0 {
			a.note("%s were taken before that: type the same command to go on", plural(n, "run"))
		}
		return err
	}
	r := im.report
	if err := a.show(r, func(s *sheet) {
		s.fields([]field{
			{"Added", cell{text: fmt.Sprint(r.Added)}},
			{"There already", cell{text: fmt.Sprint(r.Same)}},
			{"In conflict", cell{text: fmt.Sprint(r.Conflict)}},
			{"Invalid", cell{text: fmt.Sprint(r.Invalid)}},
		})
	}); err != nil {
		return err
	}
	switch n := r.Conflict + r.Invalid; {
	case r.Invalid > 0:
		return invalidf("%s not taken, and %s", plural(n, "line")+" "+wasWere(n), named(n))
	case r.Conflict > 0:
		return &failure{exit: exitConflict, code: parley.CodeConflict, text: fmt.Sprintf("%s not taken, and %s", plural(n, "line")+" "+wasWere(n), named(n))}
	}
	return nil
}

func wasWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// importer sends line after line.
type importer struct {
	app    *app
	client *client.Client
	name   string
	report parley.ArchiveReport

	batch []byte
	// numbers are those of the lines in batch.
	numbers []int
}

func (im *importer) run(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	if how, ending := compression(lines); how != "" {
		return invalidf("%s is compressed by %s, which its name does not say", im.name, how).
			withHint("name a file that ends in %s, or unpack it: %s -dc FILE | parley archive import -", ending, how)
	}
	for n := 1; ; n++ {
		line, err := longLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return invalidf("%s:%d: the file cannot be read: %v", im.name, n, err)
		}
		if len(line) > client.MaxArchiveLine {
			im.refuse(parley.ArchivedRun{Line: n, Outcome: parley.ArchiveInvalid, Code: parley.CodeLimit, Detail: fmt.Sprintf("the line is longer than %d bytes", client.MaxArchiveLine)})
			line = nil
		}
		if len(im.batch)+len(line) > importBytes || len(im.numbers) >= importLines {
			if err := im.send(ctx); err != nil {
				return err
			}
		}
		if len(line) > 0 {
			im.batch, im.numbers = append(im.batch, line...), append(im.numbers, n)
		}
		if err != nil {
			return im.send(ctx)
		}
	}
}

// compression names the program that has compressed what r begins with, and the ending of
// the names of its files; "" for lines.
func compression(r *bufio.Reader) (how, ending string) {
	begin, _ := r.Peek(4) // of what is shorter, all of it
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		return "gzip", ".gz"
	case bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd", ".zst"
	}
	return "", ""
}

// longLine reads a line with its line end, if it has one. Of one that is too long
// there is a byte more than the limit, and the rest is passed over.
func longLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part[:min(len(part), client.MaxArchiveLine+1-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// send sends the batch and names what was refused of it.
func (im *importer) send(ctx context.Context) error {
	if len(im.numbers) == 0 {
		return nil
	}
	report, err := im.client.ImportRuns(ctx, im.batch)
	if err != nil {
		return err
	}
	im.report.Added += report.Added
	im.report.Same += report.Same
	for _, r := range report.Refused {
		if r.Line > 0 && r.Line <= len(im.numbers) {
			r.Line = im.numbers[r.Line-1]
		}
		im.refuse(r)
	}
	im.batch, im.numbers = im.batch[:0], im.numbers[:0]
	return nil
}

// refuse names a line that was not taken.
func (im *importer) refuse(r parley.ArchivedRun) {
	im.report.Count(r)
	im.app.writeProblem(parley.Problem{File: im.name, Line: r.Line, Col: 1, Severity: parley.SeverityError, Code: string(r.Code), Text: r.Detail})
}

// openLines opens a file of lines; "-" is standard input.
func (a *app) openLines(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.stdin), nil
	}
	f, err := os.Open(a.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("there is no file %s", name)
	}
	if err != nil {
		return nil, usagef("%s cannot be read: %v", name, err)
	}
	in := &readFileOf{Reader: f, ends: []func() error{f.Close}}
	switch {
	case strings.HasSuffix(name, ".gz"):
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, errors.Join(invalidf("%s is not compressed by gzip", name), f.Close())
		}
		in.Reader = z
	case strings.HasSuffix(name, ".zst"):
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		in.Reader, in.ends = z, append([]func() error{func() error { z.Close(); return nil }}, in.ends...)
	}
	return in, nil
}

// readFileOf is a file that may be compressed.
type readFileOf struct {
	io.Reader
	ends []func() error
}

// Close implements io.Closer.
func (f *readFileOf) Close() error { return (&lineFile{ends: f.ends}).Close() }
