package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/server"
)

// newMigrateCommand makes `parley migrate`: changes of databases.
func newMigrateCommand(a *app) *cobra.Command {
	group := newGroup("migrate", "Change the schema of a database", `
  parley migrate status --config parley.yaml
  parley migrate up --database.url postgres://parley@db/parley
  parley migrate old env:DATABASE_URL up`)
	group.AddCommand(newMigrateUp(a), newMigrateDown(a), newMigrateStatus(a), newMigrateOldCommand(a))
	return group
}

func newMigrateUp(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "up", Short: "Bring the schema up to date",
		Example: "  parley migrate up --config parley.yaml\n  parley migrate up --data ./.parley",
		Args:    need(),
	}
	f := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd.Context(), f, database{alone: true, mayBeNew: true}, func(ctx context.Context, d *server.Database) error {
			before, err := d.Steps(ctx)
			if err != nil {
				return err
			}
			if err := d.Up(ctx); err != nil {
				return err
			}
			n := 0
			for _, s := range before {
				if s.AppliedAt.IsZero() {
					n++
				}
			}
			a.note("%s applied", plural(n, "step"))
			return a.showSteps(ctx, d)
		})
	}
	return cmd
}

func newMigrateDown(a *app) *cobra.Command {
	var to int64
	var yes bool
	cmd := &cobra.Command{
		Use: "down", Short: "Undo steps of the schema; what they hold is lost",
		Example: "  parley migrate down --to 5 --yes --config parley.yaml",
		Args:    need(),
	}
	f := addSettings(cmd)
	cmd.Flags().Int64Var(&to, "to", -1, "version to go back to; 0 drops everything")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it: what the steps hold is lost")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if to < 0 {
			return usagef("--to is missing: the version to go back to").withHint("parley migrate status lists the versions")
		}
		return a.withDatabase(cmd.Context(), f, database{alone: true}, func(ctx context.Context, d *server.Database) error {
			return a.migrateDown(ctx, d, to, yes)
		})
	}
	return cmd
}

func (a *app) migrateDown(ctx context.Context, d *server.Database, to int64, yes bool) error {
	steps, err := d.Steps(ctx)
	if err != nil {
		return err
	}
	var at int64
	for _, s := range steps {
		if !s.AppliedAt.IsZero() {
			at = max(at, s.Version)
		}
	}
	if to > at {
		return usagef("--to %d is above the version of the database, which is %d: there is nothing to undo", to, at).withHint("parley migrate up brings the schema up to date")
	}
	if !yes {
		copies := "parley backup FILE"
		if d.Shared() {
			copies = "pg_dump"
		}
		return usagef("going down loses what the steps above version %d hold", to).withHint("%s copies the database first; then repeat with --yes", copies)
	}
	if err := d.Down(ctx, to); err != nil {
		return err
	}
	return a.showSteps(ctx, d)
}

func newMigrateStatus(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "List the steps of the schema and which the database has",
		Example: "  parley migrate status --config parley.yaml\n  parley migrate status -o json",
		Args:    need(),
	}
	f := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDatabase(cmd.Context(), f, database{}, a.showSteps)
	}
	return cmd
}

func (a *app) showSteps(ctx context.Context, d *server.Database) error {
	steps, err := d.Steps(ctx)
	if err != nil {
		return err
	}
	return showList(a, listing[server.Step]{
		whole: map[string]any{"items": steps}, items: steps, none: "no steps",
		columns: []column[server.Step]{
			{head: "VERSION", cell: plain(func(s server.Step) string { return strconv.FormatInt(s.Version, 10) })},
			{head: "NAME", cell: plain(func(s server.Step) string { return s.Name })},
			{head: "APPLIED", cell: plain(func(s server.Step) string {
				if s.AppliedAt.IsZero() {
					return "pending"
				}
				return s.AppliedAt.In(a.zone).Format(time.DateTime)
			})},
		},
	})
}

// database says how a command opens it.
type database struct {
	// alone: no server may run on the folder; mayBeNew: a file that is not there
	// is made.
	alone, mayBeNew bool
}

// withDatabase opens the database of the configuration for use.
func (a *app) withDatabase(ctx context.Context, f *settingFlags, how database, use func(context.Context, *server.Database) error) (err error) {
	l, err := f.load(a)
	if err != nil {
		return err
	}
	if err := checkDatabase(&l.Config, how); err != nil {
		return err
	}
	if how.mayBeNew {
		if err := os.MkdirAll(l.Data, 0o700); err != nil {
			return usagef("--data: %v", err)
		}
	}
	d, err := server.OpenDatabase(ctx, l.Data, l.Database.URL, how.alone)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	d.Values = valuesConfig(l.Values)
	return use(ctx, d)
}

// checkDatabase refuses a data folder without a database: SQLite would make an
// empty one.
func checkDatabase(c *config.Config, how database) error {
	if !c.Database.URL.IsZero() || how.mayBeNew || exists(filepath.Join(c.Data, "parley.db")) {
		return nil
	}
	f := &failure{exit: exitNotFound, code: parley.CodeNotFound, text: "there is no database in " + c.Data}
	return f.withHint("name the folder with --data, or a PostgreSQL database with --database.url or --config")
}

// newBackupCommand makes `parley backup`.
func newBackupCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Copy the SQLite database into a new file, also while a server runs on it",
		Long: `Copy the SQLite database into a new file, consistent, also while a server runs on
it. Values that are kept apart in files are copied into a new folder beside it,
FILE.values. To go back, stop the server and put the file in the place of
parley.db in the data folder, without the files parley.db-wal and parley.db-shm,
and the folder in the place of values.dir (values in the data folder). The keys in
the data folder are not in the copy. PostgreSQL is copied by its own tools
(pg_dump), and so is the folder or the bucket of values: after the database.`,
		Example: "  parley backup parley-backup.db --data ./.parley",
		Args:    need("FILE"),
	}
	f := addSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] == "-" || args[0] == "" {
			return usagef("a database is copied into a file, not to standard output: give the name of a new file").
				withHint("parley backup FILE; then send FILE where it is to go, together with the folder FILE.values if there is one")
		}
		return a.withDatabase(cmd.Context(), f, database{}, func(ctx context.Context, d *server.Database) error {
			apart, err := d.Backup(ctx, a.path(args[0]))
			switch {
			case err != nil:
				return err
			case apart > 0:
				a.note("copied to %s, and %s to %s.values", args[0], plural(apart, "large value"), args[0])
			case d.Values.S3 != nil:
				a.note("copied to %s; large values in bucket %s are not in the copy", args[0], d.Values.S3.Bucket)
			default:
				a.note("copied to %s", args[0])
			}
			return nil
		})
	}
	return cmd
}
