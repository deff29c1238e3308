package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// apartWorld is a server that keeps values above 10,000 bytes apart, with an agent
// that gives back what it gets.
func apartWorld(t *testing.T, change func(*server.Config)) (w *world, values string) {
	t.Helper()
	dir := t.TempDir()
	log := newCallLog()
	agent := httptest.NewServer(log.simpleAgent("echo", 0))
	t.Cleanup(agent.Close)
	write(t, filepath.Join(dir, "agents.yaml"), fmt.Sprintf("agents: [{name: echo, url: %q, protocol: simple-a2a}]\n", agent.URL))
	write(t, filepath.Join(dir, "flows", "carry.yaml"), `
name: carry
steps:
  - {id: a, agent: echo, input: {text: "${workflow.input.text}"}}
  - {id: b, agent: echo, input: {text: "${a.output.text}", more: 1}}
output: {text: "${b.output.text}"}
`)
	w = &world{t: t, log: log, cfg: server.Config{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.0/8"}, DrainGrace: 100 * time.Millisecond,
		AgentFiles: []string{filepath.Join(dir, "agents.yaml")}, WorkflowDirs: []string{filepath.Join(dir, "flows")},
	}}
	w.cfg.Values.ApartAbove = 10_000
	values = filepath.Join(w.cfg.Data, "values")
	if change != nil {
		change(&w.cfg)
		values = w.cfg.Values.Dir
	}
	w.server = startServer(t, w.cfg)
	return w, values
}

func objectsIn(t *testing.T, dir string) (n int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// A run with large values has them whole wherever it is asked for them, on both
// databases; each stands once in the store of values.
func TestApartRun(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`large "é" `, 5_000)
	input, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, change func(*server.Config)) {
		w, values := apartWorld(t, change)
		run := w.run("carry", string(input))
		if run.Status != parley.RunCompleted || !sameJSON(string(run.Output), string(input)) || !sameJSON(string(run.Input), string(input)) {
			t.Fatalf("%s: %v, %d bytes", run.Status, run.Error, len(run.Output))
		}
		if len(run.Steps[1].Output) < len(text) || len(run.Steps[0].Input) < len(text) {
			t.Error("a step lacks its values")
		}
		// The run's input, what each step gets and gives (echoed), the output: some
		// are the same bytes.
		if n := objectsIn(t, values); n == 0 || n > 5 {
			t.Errorf("%d objects", n)
		}
		status, events := w.call(http.MethodGet, "/api/v1/runs/"+run.ID+"/events", "")
		if quoted, _ := json.Marshal(text); status != http.StatusOK || bytes.Count(events, quoted) < 6 {
			t.Errorf("events: %d, with the text %d times", status, bytes.Count(events, quoted))
		}
		w.log.check(t)
	}
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); check(t, nil) })
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Database(t)
		check(t, func(c *server.Config) {
			c.DatabaseURL, c.Values.Dir = parley.NewSecret([]byte(url)), filepath.Join(t.TempDir(), "shared")
		})
	})
}

// Lists of runs fetch nothing: they answer while the values are away. A run itself
// says what it lacks.
func TestApartLists(t *testing.T) {
	t.Parallel()
	w, values := apartWorld(t, nil)
	input := `{"text":"` + strings.Repeat("x", 200_000) + `"}`
	var id string
	for range 10 {
		id = w.start("carry", input).ID
	}
	w.end(id)
	for _, run := range w.listed(t) {
		w.end(run)
	}
	if err := os.Rename(values, values+".away"); err != nil {
		t.Fatal(err)
	}
	status, list := w.call(http.MethodGet, "/api/v1/runs?page_size=100", "")
	if status != http.StatusOK || len(list) > 50_000 || !bytes.Contains(list, []byte(`"input_bytes":200011`)) {
		t.Errorf("the list: %d, %d bytes", status, len(list))
	}
	status, body := w.call(http.MethodGet, "/api/v1/runs/"+id+"/attempts", "")
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"request_bytes":200011`)) {
		t.Errorf("the attempts: %d %.300s", status, body)
	}
	status, body = w.call(http.MethodGet, "/api/v1/runs/"+id, "")
	if status != http.StatusServiceUnavailable || !bytes.Contains(body, []byte("store of values")) {
		t.Errorf("the run: %d %.300s", status, body)
	}
	if err := os.Rename(values+".away", values); err != nil {
		t.Fatal(err)
	}
	for range 300 { // it is not asked for a while
		if status, body = w.call(http.MethodGet, "/api/v1/runs/"+id, ""); status == http.StatusOK {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if status != http.StatusOK || len(body) < 400_000 {
		t.Errorf("the run: %d, %d bytes", status, len(body))
	}
}

// listed gives the ids of the runs.
func (w *world) listed(t *testing.T) (ids []string) {
	t.Helper()
	_, body := w.call(http.MethodGet, "/api/v1/runs?page_size=100", "")
	var page struct{ Items []parley.Run }
	if err := json.Unmarshal(body, &page); err != nil {
		t.Fatalf("%v in %.300s", err, body)
	}
	for _, r := range page.Items {
		ids = append(ids, r.ID)
	}
	return ids
}

// A backup has the values that are kept apart in files, and is a server's data
// folder again.
func TestApartBackup(t *testing.T) {
	t.Parallel()
	w, _ := apartWorld(t, nil)
	input := `{"text":"` + strings.Repeat("x", 20_000) + `"}`
	id := w.run("carry", input).ID
	db, err := server.OpenDatabase(t.Context(), w.cfg.Data, parley.Secret{}, false)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "parley.db")
	n, err := db.Backup(t.Context(), file)
	if err != nil || n == 0 || n != objectsIn(t, file+".values") {
		t.Errorf("%d values, %v", n, err)
	}
	if _, err := db.Backup(t.Context(), file); parley.CodeOf(err) != parley.CodeConflict {
		t.Errorf("over another: %v", err)
	}
	values := filepath.Join(w.cfg.Data, "values")
	if err := os.Rename(values, values+".away"); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "half.db")
	if _, err := db.Backup(t.Context(), half); err == nil {
		t.Error("a backup without its values")
	}
	if left, err := filepath.Glob(half + "*"); err != nil || len(left) > 0 {
		t.Errorf("half a backup is left: %v, %v", left, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".values", filepath.Join(dir, "values")); err != nil {
		t.Fatal(err)
	}
	cfg := w.cfg
	cfg.Data = dir
	restored := &world{t: t, cfg: cfg, log: w.log, server: startServer(t, cfg)}
	if run := restored.end(id); !sameJSON(string(run.Output), input) {
		t.Errorf("%d bytes came back", len(run.Output))
	}
}

// A server that is pointed at the values of another one's database does not start, and
// says where they are; the other keeps them.
func TestApartOneOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "shared")
	w, _ := apartWorld(t, func(c *server.Config) { c.Values.Dir = dir })
	input := `{"text":"` + strings.Repeat("x", 20_000) + `"}`
	id := w.run("carry", input).ID
	cfg := server.Config{Data: t.TempDir(), Listen: "127.0.0.1:0"}
	cfg.Values.Dir = dir
	if s, err := server.New(t.Context(), cfg); err != nil {
		t.Errorf("a server that keeps nothing apart: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	cfg.Values.ApartAbove = 1
	_, err := server.New(t.Context(), cfg)
	if parley.CodeOf(err) != parley.CodeConflict || !strings.Contains(err.Error(), dir) {
		t.Errorf("two databases on one folder: %v", err)
	}
	if run := w.end(id); !sameJSON(string(run.Output), input) {
		t.Errorf("%d bytes came back", len(run.Output))
	}
}

// Where nothing is kept apart, there is nothing to be taken.
func TestApartOffHasNoFolder(t *testing.T) {
	t.Parallel()
	cfg := server.Config{Data: t.TempDir(), Listen: "127.0.0.1:0"}
	s, err := server.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if found, err := filepath.Glob(filepath.Join(cfg.Data, "values*")); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// Files that other processes need are not kept where they do not find them.
func TestApartSharedFolder(t *testing.T) {
	t.Parallel()
	cfg := server.Config{Data: t.TempDir(), Listen: "127.0.0.1:0", DatabaseURL: parley.NewSecret([]byte("postgres://nobody@127.0.0.1:1/x"))}
	cfg.Values.ApartAbove = 1
	_, err := server.New(t.Context(), cfg)
	if parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), "values.dir") {
		t.Errorf("%v", err)
	}
	cfg.Values.S3 = &server.ValuesBucket{}
	if _, err := server.New(t.Context(), cfg); parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), "values.s3.bucket") {
		t.Errorf("%v", err)
	}
}
