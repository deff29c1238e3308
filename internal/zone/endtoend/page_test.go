package endtoend

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley/internal/testcache"
	"github.com/parley-project/parley/internal/zone/verification/slacktest"
)

// root of the repository.
const root = "../../.."

// readFile gives the text of a file below root.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fenced gives the blocks of a language on a page.
func fenced(page, language string) (all []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

// exampleAgent starts the agent of the examples, and gives its URL.
func exampleAgent(t *testing.T) string {
	t.Helper()
	file, err := testcache.Program(t.Context(), "github.com/parley-project/parley/examples/agents/go")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, "--port", "0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := regexp.MustCompile(`listening on (http://[^/\s]+)`).FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the agent
			return m[1]
		}
	}
	t.Fatalf("the agent of the examples does not listen: %v", lines.Err())
	return ""
}

// TestZonesPage goes through docs/zones.md as a reader does: with the configurations
// of examples/zones as they are, but for addresses that may be taken here, and with
// a Slack that is not real. What the requests give is what the page says.
func TestZonesPage(t *testing.T) {
	t.Parallel()
	page := readFile(t, "docs/zones.md")
	dir := t.TempDir()
	agent := exampleAgent(t)
	shown := fenced(page, "yaml")
	for _, name := range []string{"flows/answer.yaml", "execution.yaml", "verification.yaml"} {
		text := readFile(t, "examples/zones/"+name)
		if !slices.Contains(shown, text) {
			t.Errorf("the page does not show examples/zones/%s as it is", name)
		}
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "http://127.0.0.1:9001", agent)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	slack := slacktest.New(slacktest.Config{Token: botToken, AppToken: appToken, SigningSecret: signingSecret, Now: time.Now})
	front := httptest.NewServer(slack)
	t.Cleanup(front.Close)
	slack.Listen(front.URL)
	env := []string{
		"ZONE_TOKEN=" + zoneToken, "SLACK_APP_TOKEN=" + appToken, "SLACK_BOT_TOKEN=" + botToken, "PARLEY_LISTEN=127.0.0.1:0",
		"PARLEY_ZONE__VERIFICATION__SLACK__API_URL=" + front.URL + "/api/",
	}
	execution := &process{t: t, kind: "execution", file: filepath.Join(dir, "execution.yaml"), env: env, announced: regexp.MustCompile(`execution zone at http://(\S+)`)}
	execution.start()
	t.Cleanup(execution.kill)
	pageRequests(t, page, execution.address)

	verification := &process{
		t: t, kind: "verification", file: filepath.Join(dir, "verification.yaml"), announced: regexp.MustCompile(`verification zone at http://(\S+)`),
		env: append(env, "PARLEY_ZONE__VERIFICATION__DIRECT__URL=http://"+execution.address+"/invocations"),
	}
	verification.start()
	t.Cleanup(verification.kill)
	eventually(t, "the zone does not connect", func() bool { return slack.Connections() > 0 })
	m := question(1, "echo is anybody there?")
	slack.Push("events_api", m.Body())
	eventually(t, "no answer", func() bool { return len(slack.Thread("C0CHAN", m.TS)) > 0 })
	if got := slack.Thread("C0CHAN", m.TS)[0].Text; got != "is anybody there?" {
		t.Errorf("the answer in the thread: %q", got)
	}
}

// pageRequests sends what the page has as curl to an Execution Zone.
func pageRequests(t *testing.T, page, address string) {
	t.Helper()
	asked := regexp.MustCompile("(?ms)^```sh\n(curl [^`]*?/invocations .*?)^```\n+```json\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	for _, m := range asked {
		body := regexp.MustCompile(`(?s)-d '(.*?)'`).FindStringSubmatch(m[1])
		if body == nil {
			t.Errorf("a request without a body: %s", m[1])
			continue
		}
		got, want := invoke(t.Context(), t, address, body[1]), any(nil)
		if err := json.Unmarshal([]byte(m[2]), &want); err != nil {
			t.Errorf("%s: %v", m[2], err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s gives %v, the page has %v", body[1], got, want)
		}
	}
	if len(asked) < 4 {
		t.Errorf("only %d requests on the page", len(asked))
	}
}

// invoke posts a request with the token, and gives what comes back.
func invoke(ctx context.Context, t *testing.T, address, body string) (answer any) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/invocations", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+zoneToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Errorf("%s: HTTP %d: %v", body, resp.StatusCode, err)
	}
	return answer
}

// TestZonesPageSettings has the program read every configuration of the page.
func TestZonesPageSettings(t *testing.T) {
	t.Parallel()
	file, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	all := fenced(readFile(t, "docs/zones.md"), "yaml")
	read := 0
	for _, text := range all {
		if !strings.Contains(text, "zone:") {
			continue
		}
		read++
		dir := t.TempDir()
		name := filepath.Join(dir, "parley.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\S+\.(pem|key)\b`).FindAllString(text, -1) {
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(m)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(file, "config", "view", "--config", name)
		cmd.Env = os.Environ()
		for _, m := range regexp.MustCompile(`env:(\w+)`).FindAllStringSubmatch(text, -1) {
			cmd.Env = append(cmd.Env, m[1]+"=postgres://parley@db.example.com/parley") // one of them is a database, to the others it is all the same
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, text, out)
		}
	}
	if read < 7 {
		t.Errorf("only %d configurations on the page", read)
	}
}

// TestZonesPageTests: the tests that the page names are there.
func TestZonesPageTests(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, pattern := range []string{"internal/zone/*_test.go", "internal/zone/*/*_test.go", "internal/server/*_test.go", "internal/store/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	named := regexp.MustCompile(`TestZN\d_\w+`).FindAllString(readFile(t, "docs/zones.md"), -1)
	for _, name := range named {
		if !strings.Contains(code.String(), "func "+name+"(") {
			t.Errorf("there is no %s", name)
		}
	}
	if len(named) < 10 {
		t.Errorf("only %d tests are named", len(named))
	}
}
