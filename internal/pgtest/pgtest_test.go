package pgtest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func value(t testing.TB, server, query string) (v string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server)
	check(t, err)
	defer conn.Close(context.Background())
	check(t, conn.QueryRow(t.Context(), query).Scan(&v))
	return v
}

// Each database is new, empty, of version 17 and gone after the test.
func TestDatabase(t *testing.T) {
	var url string
	t.Run("use", func(t *testing.T) {
		url = Database(t)
		if url == Database(t) {
			t.Error("the same database twice")
		}
		// A server that nobody holds on to would end with what starts it.
		runtime.GC()
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
		check(t, execute(url, "CREATE TABLE a (b text)"))
		check(t, execute(Copy(t, url), "INSERT INTO a VALUES ('one')"))
		if got := value(t, url, "SELECT count(*)::text FROM a"); got != "0" {
			t.Errorf("%s rows in the original", got)
		}
		if got := value(t, url, "SHOW server_version_num"); os.Getenv("PARLEY_TEST_POSTGRES") == "" && !strings.HasPrefix(got, "17") {
			t.Errorf("version %s", got)
		}
		if got := value(t, url, "SHOW server_encoding"); got != "UTF8" {
			t.Errorf("encoding %s", got)
		}
	})
	if err := ping(t.Context(), url); err == nil || !strings.Contains(err.Error(), "3D000") {
		t.Errorf("the database is still there: %v", err)
	}
}

// A server keeps what was committed over Stop and Kill, and answers again after
// Pause and Continue.
func TestServer(t *testing.T) {
	s := Start(t, Options{Settings: map[string]string{"work_mem": "5MB"}})
	if got := value(t, s.URL("postgres"), "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem is %s", got)
	}
	if !strings.Contains(s.URL("x"), "@"+s.Addr()+"/x?") {
		t.Errorf("%s is not at %s", s.URL("x"), s.Addr())
	}
	s.Exec("CREATE TABLE a (b text)")
	s.Exec("INSERT INTO a VALUES ('one')")
	for _, end := range []func(){s.Stop, s.Kill, func() {}} {
		end()
		s.Restart()
		if got := value(t, s.URL("postgres"), "SELECT b FROM a"); got != "one" {
			t.Errorf("got %q", got)
		}
	}
	s.Stop()
	if err := ping(t.Context(), s.URL("postgres")); err == nil {
		t.Error("a stopped server answers")
	}
	s.Restart()
	s.Pause()
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if err := ping(ctx, s.URL("postgres")); err == nil {
		t.Error("a paused server answers")
	}
	s.Continue()
	check(t, ping(t.Context(), s.URL("postgres")))
	s.Pause() // its cleanup has to be able to end it
}

// A promoted standby has everything that was committed.
func TestStandby(t *testing.T) {
	s := Start(t, Options{})
	s.Exec("CREATE TABLE a (b text)")
	standby := s.Standby(t)
	s.Exec("INSERT INTO a VALUES ('one')")
	if got := value(t, standby.URL("postgres"), "SELECT pg_is_in_recovery()::text"); got != "true" {
		t.Errorf("in recovery: %s", got)
	}
	s.Kill()
	standby.Promote()
	standby.Exec("INSERT INTO a VALUES ('two')")
	if got := value(t, standby.URL("postgres"), "SELECT string_agg(b, ' ' ORDER BY b) FROM a"); got != "one two" {
		t.Errorf("got %q", got)
	}
}

// However a test process ends, its servers end with it, and their folders go.
func TestEndsWithTheProcess(t *testing.T) {
	if how := os.Getenv("PARLEY_PGTEST_END"); how != "" {
		t.Setenv("PARLEY_TEST_POSTGRES", "")
		Database(t)
		s := Start(t, Options{})
		if how == "paused" {
			s.Pause()
		}
		os.Stdout.WriteString("folder " + s.c.folder + " " + strconv.Itoa(s.c.pid) + "\n")
		if how == "panic" {
			panic("on purpose")
		}
		<-t.Context().Done()
	}
	for _, how := range []string{"kill", "paused", "panic"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndsWithTheProcess$")
			cmd.Env = append(os.Environ(), "PARLEY_PGTEST_END="+how)
			out, err := cmd.StdoutPipe()
			check(t, err)
			check(t, cmd.Start())
			var fields []string
			for lines := bufio.NewScanner(out); len(fields) != 3 && lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "folder ") {
					fields = strings.Fields(lines.Text())
				}
			}
			if len(fields) != 3 {
				t.Fatal("it did not say where its server is")
			}
			if how != "panic" {
				check(t, cmd.Process.Signal(syscall.SIGKILL))
			}
			_ = cmd.Wait()
			for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
				_, folder := os.Stat(fields[1])
				_, process := os.Stat(filepath.Join("/proc", fields[2]))
				if os.IsNotExist(folder) && os.IsNotExist(process) {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("folder: %v, process: %v", folder, process)
				}
			}
		})
	}
}
