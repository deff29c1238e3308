package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
	"github.com/parley-project/parley/internal/server"
)

// importFlags are those of `parley import`.
type importFlags struct {
	protocol, data, database string
	// elsewhere: database was given.
	elsewhere, dryRun bool
}

// newImportCommand makes `parley import`: the existing platform's database.
func newImportCommand(a *app) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use: "import POSTGRES-URL", Short: "Take over the database of the existing platform",
		Long: `Takes over the agents, workflows, runs with their steps and audit entries of the existing platform's database into the
store of a server (with --data, of one that is not running). It only reads there, and may be repeated: what is here already is left alone, what
has changed there since is brought up to date. POSTGRES-URL is its DATABASE_URL, or env:NAME or file:PATH of it.

Runs that had not ended are named, a line each, and are FAILED here. Records that cannot be imported are named, too, and
the exit code is 1.`,
		Example: `  parley import postgresql://user@host/workflows --dry-run
  parley import env:DATABASE_URL --data ./.parley
  parley import file:url.txt --protocol simple-a2a`,
		Args: need("POSTGRES-URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.elsewhere = cmd.Flags().Changed("database")
			return a.importOld(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.protocol, "protocol", parley.ProtocolJSONRPC, "what agents speak whose record does not say")
	flags.StringVar(&f.data, "data", defaultData, "folder of the database and the keys")
	flags.StringVar(&f.database, "database", "", "postgres:// URL of Parley's own database, or env:NAME or file:PATH of it; none: the file in --data")
	flags.BoolVar(&f.dryRun, "dry-run", false, "read and compare everything, write nothing")
	complete(cmd, "protocol", parley.ProtocolJSONRPC, parley.ProtocolSimpleA2A)
	neverEmpty(cmd, "data", "protocol")
	return cmd
}

// maxNotices bounds the notices of one JSON object; all are on standard error.
const maxNotices = 10_000

// imported is what `parley import` writes for programs.
type imported struct {
	*oldplatform.Report
	Notices []oldplatform.Notice `json:"notices"`
}

func (a *app) importOld(ctx context.Context, address string, f importFlags) error {
	address, err := a.address(address)
	if err != nil {
		return err
	}
	own := ""
	if f.elsewhere {
		if own, err = a.address(f.database); err != nil {
			return err
		}
	}
	if own != "" && !strings.HasPrefix(own, "postgres://") && !strings.HasPrefix(own, "postgresql://") {
		return usagef("--database: give a postgres:// URL; for a file, --data names its folder")
	}
	cfg, err := a.devConfig(devFlags{data: f.data, noSamples: true, allowStdio: true, logLevel: "warn", logFormat: "text"})
	if err != nil {
		return err
	}
	out := imported{Notices: []oldplatform.Notice{}}
	o := server.OldImport{Options: oldplatform.Options{Address: address, Protocol: f.protocol, DryRun: f.dryRun}}
	if own != "" {
		o.Store = parley.NewSecret([]byte(own))
	}
	o.Tell = func(n oldplatform.Notice) {
		a.tellNotice(n)
		if len(out.Notices) < maxNotices {
			out.Notices = append(out.Notices, n)
		}
	}
	out.Report, err = server.ImportOld(ctx, cfg, o)
	if len(out.Tables) > 0 {
		if err := a.show(out, func(s *sheet) { drawImport(s, out.Report) }); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	return a.concludeImport(out.Report, f)
}

// concludeImport says what came of it in a line.
func (a *app) concludeImport(r *oldplatform.Report, f importFlags) error {
	if n := r.Refused(); n > 0 {
		return (&failure{exit: exitFailed, code: parley.CodeInvalid, text: plural(n, "record") + " could not be imported, and " + named(n)}).
			withHint("put right over there what is named, or make it here; then import again")
	}
	switch {
	case r.DryRun:
		a.note("nothing was written: %s would be", plural(r.Writes(), "record"))
	case r.Writes() == 0:
		a.note("everything is here already: nothing has changed")
	default:
		a.next("%s %s", a.program(), f.serving())
	}
	return nil
}

// serving is the command that serves what was imported.
func (f importFlags) serving() string {
	command := "dev"
	if f.elsewhere {
		database := f.database
		if !isReference(database) {
			database = "env:NAME" // it may hold a password
		}
		command = "serve --database.url " + shellWord(database)
	}
	if f.data != defaultData {
		command += " --data " + shellWord(f.data)
	}
	return command
}

// named continues a sentence about n records.
func named(n int) string {
	if n == 1 {
		return "is named above"
	}
	return "are named above"
}

// tellNotice writes one line: what is refused even to those who want quiet.
func (a *app) tellNotice(n oldplatform.Notice) {
	what := n.ID
	if n.Name != "" {
		what = strings.TrimSpace(what + " (" + n.Name + ")")
	}
	line := clean(strings.Join(strings.Fields(fmt.Sprintf("%s: %s %s: %s", n.Kind, n.Table, what, n.Text)), " "))
	if n.Kind == oldplatform.NoticeRefused {
		fmt.Fprintln(a.stderr, line)
		return
	}
	a.note("%s", line)
}

// drawImport writes the counts of each table.
func drawImport(s *sheet, r *oldplatform.Report) {
	number := func(head string, of func(*oldplatform.Counts) int) column[*oldplatform.Counts] {
		return column[*oldplatform.Counts]{head: head, cell: plain(func(c *oldplatform.Counts) string { return strconv.Itoa(of(c)) })}
	}
	drawTable(s, []column[*oldplatform.Counts]{
		{head: "TABLE", cell: plain(func(c *oldplatform.Counts) string { return c.Table })},
		number("READ", func(c *oldplatform.Counts) int { return c.Read }),
		number("IMPORTED", func(c *oldplatform.Counts) int { return c.Imported }),
		number("CHANGED", func(c *oldplatform.Counts) int { return c.Changed }),
		number("UNCHANGED", func(c *oldplatform.Counts) int { return c.Unchanged }),
		number("REFUSED", func(c *oldplatform.Counts) int { return c.Refused }),
		number("LEFT", func(c *oldplatform.Counts) int { return c.Left }),
	}, r.Tables)
}

// address takes the URL of a database, or a reference to it: it holds a password,
// and command lines can be seen by others. An empty one is refused: the driver would
// take the variables of libpq, and connect to a database that nobody has named.
func (a *app) address(text string) (string, error) {
	url, err := a.dereference(text)
	if err == nil && strings.TrimSpace(url) == "" {
		return "", usagef("the URL of the database is empty")
	}
	return url, err
}

func (a *app) dereference(text string) (string, error) {
	if name, ok := strings.CutPrefix(text, "env:"); ok {
		v := a.getenv(name)
		if v == "" {
			return "", usagef("the environment variable %s is not set", name)
		}
		return v, nil
	}
	if name, ok := strings.CutPrefix(text, "file:"); ok {
		b, err := readSmall(a.path(name))
		if err != nil {
			return "", usagef("the file of the URL: %v", err)
		}
		return string(bytes.TrimSpace(withoutMark(b))), nil
	}
	return text, nil
}
