package a2a

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
	"github.com/parley-project/parley/jsonrpc"
)

// TestMain is also the agent that the tests run as a process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stdio-agent" {
		os.Exit(stdioAgent(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// stdioAgent answers one request a line. What it does stands in the params, as
// {"do": …}; args are what it does at its start.
func stdioAgent(args []string) int {
	for _, arg := range args {
		switch arg {
		case "die":
			fmt.Fprintln(os.Stderr, "cannot read my settings")
			return 3
		case "noise":
			fmt.Print("Starting up…\n{\"level\":\"info\"}\n[1, 2\n{\"jsonrpc\":\"2.0\",\"id\":\"nobody's\",\"result\":{}}\n")
		}
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Do   string `json:"do"`
				Text string `json:"text"`
			} `json:"params"`
		}
		if err := json.Unmarshal(in.Bytes(), &req); err != nil {
			fmt.Fprintln(os.Stderr, "bad request:", err)
			return 1
		}
		var result any = req.Method + " " + req.Params.Text
		switch req.Params.Do {
		case "hang":
			fmt.Fprintln(os.Stderr, "I hang")
			continue
		case "crash":
			fmt.Fprintln(os.Stderr, "boom: "+req.Params.Text)
			return 4
		case "pid":
			result = os.Getpid()
		case "env":
			result = os.Environ()
		case "flood":
			line := strings.Repeat("x", 10_000) + "\n"
			for range 500 {
				os.Stderr.WriteString(line)
			}
		case "big":
			result = strings.Repeat("y", 3<<20)
		case "hangup":
			os.Stdout.Close()
			stopped := make(chan os.Signal, 1)
			signal.Notify(stopped, syscall.SIGTERM)
			<-stopped // goes on without an output
			return 0
		case "error":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"no such task","data":{"id":1e2}}}`+"\n", req.ID)
			continue
		case "wrong":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":1,"error":{"code":1,"message":"x"}}`+"\n", req.ID)
			continue
		}
		text, err := json.Marshal(result)
		if err != nil {
			return 1
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", req.ID, text)
	}
	return 0
}

// logLines is a log that tests read.
type logLines struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{} // closed by the next line; nil: nobody waits
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.buf.Write(p)
}

// await waits until the log holds text.
func (l *logLines) await(text string) {
	for {
		l.mu.Lock()
		if strings.Contains(l.buf.String(), text) {
			l.mu.Unlock()
			return
		}
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		<-more
	}
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// linkRig is links with an agent to call over them.
type linkRig struct {
	*links
	agent parley.Agent
	to    Endpoint
	log   *logLines
}

// linkPatience is the timeout of agents where the test is about something else:
// no machine is as slow as that.
const linkPatience = 2 * time.Minute

func newLinkRig(t *testing.T, url string, opts linkOptions) *linkRig {
	t.Helper()
	if opts.Exchange == nil {
		opts.Exchange = bridge.NewExchange(bridge.ExchangeConfig{Limits: bridge.ExchangeLimits{MaxResponse: 1 << 20}})
	}
	r := &linkRig{log: &logLines{}, agent: parley.Agent{Name: "local", URL: url, Timeout: linkPatience}, to: Endpoint{URL: url, Version: V10}}
	opts.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.links = newLink(opts)
	t.Cleanup(r.close)
	return r
}

func newProcessRig(t *testing.T, opts linkOptions, args ...string) *linkRig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	opts.Stdio = true
	// The race detector would hold up the end of each process for a second.
	return newLinkRig(t, "stdio:env GORACE=atexit_sleep_ms=0 '"+self+"' stdio-agent "+strings.Join(args, " "), opts)
}

// op is an operation with the params {"do": do, "text": text}.
func (r *linkRig) op(vb verb, do, text string) operation {
	params, err := json.Marshal(map[string]string{"do": do, "text": text})
	if err != nil {
		panic(err)
	}
	return operation{verb: vb, to: r.to, task: parley.Task{ID: "run-1.ask.1", Step: "ask", Attempt: 1}, agent: r.agent, id: "run-1.ask.1", params: params}
}

// call makes one call and gives its result.
func (r *linkRig) call(ctx context.Context, vb verb, do, text string) (string, *failure, error) {
	op := r.op(vb, do, text)
	body, err := r.encode(op)
	if err != nil {
		return "", nil, err
	}
	reply, err := r.carry(ctx, op, body)
	if err != nil {
		return "", nil, err
	}
	result, f, err := r.open(op, reply.Body)
	return string(result), f, err
}

// wantLinkError checks the error of a call.
func wantLinkError(t *testing.T, err error, d bridge.Disposition, code parley.Code) *bridge.ExchangeError {
	t.Helper()
	e, ok := errors.AsType[*bridge.ExchangeError](err)
	if !ok {
		t.Fatalf("error %v (%T), want an ExchangeError", err, err)
	}
	if e.Disposition != d || e.Err.Code != code {
		t.Errorf("disposition %d, code %s, want %d, %s: %v", e.Disposition, e.Err.Code, d, code, e)
	}
	if e.Err.Agent != "local" || e.Err.Step != "ask" || e.Err.Attempt != 1 {
		t.Errorf("the error does not say what it is about: %+v", e.Err)
	}
	return e
}

func TestProcess(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{}, "noise")
	for vb, want := range map[verb]string{
		verbSend: `"SendMessage hi"`, verbGet: `"GetTask hi"`, verbCancel: `"CancelTask hi"`, verbList: `"ListTasks hi"`,
	} {
		if got, f, err := r.call(t.Context(), vb, "echo", "hi"); err != nil || f != nil || got != want {
			t.Errorf("%v: %s, %v, %v, want %s", vb, got, f, err, want)
		}
	}
	r.to.Version = V03
	if got, _, err := r.call(t.Context(), verbSend, "echo", "hi"); err != nil || got != `"message/send hi"` {
		t.Errorf("A2A 0.3: %s, %v", got, err)
	}
	if _, _, err := r.call(t.Context(), verbList, "echo", "hi"); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("list of 0.3: %v, want the code invalid", err)
	}
	op := r.op(verbSend, "echo", "hi")
	op.method = "message/sende"
	if reply, err := r.carry(t.Context(), op, op.params); err != nil || !strings.Contains(string(reply.Body), `"message/sende hi"`) {
		t.Errorf("a method of the record (AD-3): %s, %v", reply.Body, err)
	}
	_, f, err := r.call(t.Context(), verbGet, "error", "")
	if err != nil || f == nil || f.code != -32001 || f.message != "no such task" || string(f.data) != `{"id":1e2}` {
		t.Errorf("an error of the agent: %+v, %v", f, err)
	}
	// Neither stdio nor WebSocket has streams.
	for vb, want := range map[verb]string{verbStream: `"SendMessage hi"`, verbSubscribe: `"GetTask hi"`} {
		r.to.Version = V10
		op := r.op(vb, "echo", "hi")
		events, reply, err := r.stream(t.Context(), op, op.params)
		if events != nil || err != nil || !strings.Contains(string(reply.Body), want) {
			t.Errorf("%v: %v, %s, %v, want %s", vb, events, reply.Body, err, want)
		}
	}
	if n := strings.Count(r.log.String(), "agent_process_started"); n != 2 {
		t.Errorf("%d processes, want one for each dialect", n)
	}
}

// TestProcessShared proves that concurrent calls share one process, each getting
// its own answer.
func TestProcessShared(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			text := fmt.Sprint("n", i)
			if got, _, err := r.call(t.Context(), verbSend, "echo", text); err != nil || got != `"SendMessage `+text+`"` {
				t.Errorf("%s: %s, %v", text, got, err)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(r.log.String(), "agent_process_started"); n != 1 {
		t.Errorf("%d processes, want 1", n)
	}
}

// TestProcessKilled proves that a call under way as its agent is killed is lost,
// and that the agent is started again.
func TestProcessKilled(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{Random: func() float64 { return 2 }}) // which takes the whole pause off
	pid, n := r.pid(t)
	lost := make(chan error, 1)
	go func() {
		_, _, err := r.call(t.Context(), verbSend, "hang", "")
		lost <- err
	}()
	r.log.await("I hang")
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := wantLinkError(t, <-lost, bridge.Lost, parley.CodeAgentUnavailable); !e.Err.Retryable {
		t.Errorf("%v: want a retryable error", e)
	}
	r.log.await("agent_link_failed")
	if !strings.Contains(r.log.String(), "signal: killed") {
		t.Errorf("the log does not tell the signal:\n%s", r.log)
	}
	if again, _ := r.pid(t); again == pid {
		t.Errorf("process %s answers after its death", pid)
	}
}

// pid asks the process for its id.
func (r *linkRig) pid(t *testing.T) (text string, n int) {
	t.Helper()
	text, _, err := r.call(t.Context(), verbGet, "pid", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return text, n
}

// TestProcessCrash proves that an agent that ends by itself is told from its
// status and its last words, without the credential.
func TestProcessCrash(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{Random: func() float64 { return -1000 }}) // a pause that outlasts the test
	r.agent.Auth = parley.Auth{Type: parley.AuthHeader, Header: "AGENT_TOKEN"}
	r.agent.Credential = parley.NewSecret([]byte("s3cr3t-token"))
	_, _, err := r.call(t.Context(), verbSend, "crash", "I had s3cr3t-token")
	e := wantLinkError(t, err, bridge.Lost, parley.CodeAgentUnavailable)
	if strings.Contains(e.Error(), "s3cr3t") {
		t.Errorf("%v: want no credential", e)
	}
	r.log.await("agent_link_failed")
	_, _, err = r.call(t.Context(), verbSend, "echo", "")
	e = wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
	if e.RetryAfter <= 0 || !e.Err.Retryable || !strings.Contains(e.Error(), "exit status 4") || !strings.Contains(e.Error(), "boom: I had [redacted]") {
		t.Errorf("%v, retry after %v: want a pause, the status and the last words", e, e.RetryAfter)
	}
	r.close()
	if log := r.log.String(); !strings.Contains(log, "boom") || strings.Contains(log, "s3cr3t") {
		t.Errorf("want the last words in the log, and no credential:\n%s", log)
	}
}

func TestProcessCannotStart(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"stdio:no-such-program-here x":  "executable file not found",
		"stdio:/no/such/file":           "no such file",
		"stdio:'unbalanced":             "without its partner",
		"stdio:":                        "names no program",
		"STDIO:  \t":                    "names no program",
		"stdio:" + text:                 "permission denied",
		"stdio:'/no/such/dir/s3cr3t' x": "no such file",
	} {
		r := newLinkRig(t, command, linkOptions{Stdio: true})
		_, _, err := r.call(t.Context(), verbSend, "echo", "")
		e, ok := errors.AsType[*bridge.ExchangeError](err)
		if !ok || e.Disposition != bridge.NotSent || e.Err.Retryable || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v, want not sent, for good, and %q", command, err, want)
		}
	}
}

// TestProcessForbidden proves that no program is run unless the server says so
// (design: agent records come over the network).
func TestProcessForbidden(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{})
	r.opts.Stdio = false
	_, _, err := r.call(t.Context(), verbSend, "echo", "")
	if parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), "--allow-stdio") {
		t.Errorf("%v: want the code invalid and how to allow it", err)
	}
	r.opts.Stdio = true
	r.agent.URL = "https://agent.example/"
	if _, _, err := r.call(t.Context(), verbSend, "echo", ""); parley.CodeOf(err) != parley.CodeInvalid {
		t.Errorf("a program that the record does not name: %v, want the code invalid", err)
	}
	if strings.Contains(r.log.String(), "started") {
		t.Error("a program was run")
	}
}

// TestProcessEnvironment proves that a process gets what it needs and the
// credential that its record names, and nothing else of this server's.
func TestProcessEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PATH": "/bin", "LANG": "C", "PARLEY_SECRET_X": "hidden", "AWS_SECRET_ACCESS_KEY": "hidden", "LD_PRELOAD": "/x.so"}
	r := newProcessRig(t, linkOptions{LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	seen := func() string {
		t.Helper()
		got, _, err := r.call(t.Context(), verbSend, "env", "")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := seen(); got != `["PATH=/bin","LANG=C","GORACE=atexit_sleep_ms=0"]` {
		t.Errorf("environment %s", got)
	}
	r.agent.Auth = parley.Auth{Type: parley.AuthAPIKey, Header: "AGENT_KEY"}
	r.agent.Credential = parley.NewSecret([]byte("k1"))
	if got := seen(); got != `["PATH=/bin","LANG=C","AGENT_KEY=k1","GORACE=atexit_sleep_ms=0"]` {
		t.Errorf("environment with a key: %s", got)
	}
	r.agent.Credential = parley.NewSecret([]byte("k2")) // rotated
	if got := seen(); got != `["PATH=/bin","LANG=C","AGENT_KEY=k2","GORACE=atexit_sleep_ms=0"]` {
		t.Errorf("environment with another key: %s", got)
	}
	r.agent.Auth = parley.Auth{Type: parley.AuthHeaders, Headers: map[string]string{"A_1": "env:X"}}
	r.agent.Resolved = &parley.ResolvedAuth{Headers: map[string]parley.Secret{"A_1": parley.NewSecret([]byte("value-1"))}}
	if got := seen(); got != `["PATH=/bin","LANG=C","A_1=value-1","GORACE=atexit_sleep_ms=0"]` {
		t.Errorf("environment with two: %s", got)
	}
	for _, bad := range []parley.Auth{
		{Type: parley.AuthBearer},
		{Type: parley.AuthAPIKey},
		{Type: parley.AuthHeader, Header: "X-Api-Key"},
		{Type: parley.AuthHeader, Header: "1A"},
		{Type: parley.AuthBasic},
		{Type: parley.AuthOAuth2},
		{Type: parley.AuthHeaders, Headers: map[string]string{"EMPTY": ""}},
	} {
		r.agent.Auth = bad
		if _, _, err := r.call(t.Context(), verbSend, "env", ""); err == nil || !strings.Contains(err.Error(), "variable") {
			t.Errorf("%+v: %v, want an error that tells about environment variables", bad, err)
		}
	}
}

// TestProcessAnswers proves what becomes of answers that cannot be used.
func TestProcessAnswers(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{})
	_, _, err := r.call(t.Context(), verbSend, "big", "")
	e := wantLinkError(t, err, bridge.Lost, parley.CodeLimit)
	if !strings.Contains(string(e.Err.Details), `"max_response"`) {
		t.Errorf("details %s, want the limit", e.Err.Details)
	}
	_, _, err = r.call(t.Context(), verbSend, "wrong", "")
	wantLinkError(t, err, bridge.Answered, parley.CodeAgentError)
	op := r.op(verbSend, "echo", strings.Repeat("x", 9<<20))
	if _, err := r.carry(t.Context(), op, op.params); parley.CodeOf(err) != parley.CodeLimit {
		t.Errorf("a request of 9 MiB: %v, want the code limit", err)
	}
	// None of that ended the process.
	if n := strings.Count(r.log.String(), "agent_process_started"); n != 1 {
		t.Errorf("%d processes, want 1", n)
	}
}

// TestProcessTalks proves that people are told of an agent that says something in
// place of an answer.
func TestProcessTalks(t *testing.T) {
	for text, want := range map[string]string{
		"I am ready!": "but what is none (malformed: ",
		`{"jsonrpc":"2.0","id":"mine","result":{}}`: "but what is none (unknown response: ",
	} {
		synctest.Test(t, func(t *testing.T) {
			var agents sync.WaitGroup
			defer agents.Wait()
			dial := func(context.Context, linkTarget) (jsonrpc.Stream, error) {
				ours, theirs := net.Pipe()
				agents.Go(func() {
					defer theirs.Close()
					for in := bufio.NewScanner(theirs); in.Scan(); {
						_, _ = fmt.Fprintln(theirs, text)
					}
				})
				return jsonrpc.NewLineStream(ours), nil
			}
			r := newLinkRig(t, "stdio:agent", linkOptions{Stdio: true, Dial: dial})
			_, _, err := r.call(t.Context(), verbSend, "talk", text)
			if e := wantLinkError(t, err, bridge.Lost, parley.CodeTimeout); !strings.Contains(e.Error(), want) || strings.Contains(e.Error(), "ready") {
				t.Errorf("%v, want %q", e, want)
			}
			r.close()
		})
	}
}

// TestProcessHangsUp proves that calls do not wait for an agent that has closed
// its output but does not end.
func TestProcessHangsUp(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{StopWait: time.Hour})
	_, n := r.pid(t)
	_, _, err := r.call(t.Context(), verbSend, "hangup", "")
	wantLinkError(t, err, bridge.Lost, parley.CodeAgentUnavailable)
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Errorf("the call was told when the process had ended: %v", err)
	}
}

// TestProcessStderr proves that a flood on stderr does not stall the agent.
func TestProcessStderr(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{})
	if _, _, err := r.call(t.Context(), verbSend, "flood", ""); err != nil {
		t.Fatal(err)
	}
	r.close()
	if !strings.Contains(r.log.String(), "agent=local") {
		t.Error("the lines do not name the agent")
	}
}

// TestStderrRate proves that a flood on stderr does not fill the log.
func TestStderrRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logLines{}
		s := newStderrLog(t.Context(), slog.New(slog.NewTextHandler(log, nil)), parley.Agent{Name: "local"}, time.Now)
		for range 500 {
			s.line([]byte("x"))
		}
		time.Sleep(time.Second)
		s.line([]byte("x"))
		text := log.String()
		if n := strings.Count(text, "agent_stderr"); n != maxStderrRate+1 {
			t.Errorf("%d lines in the log, want %d and one", n, maxStderrRate)
		}
		if want := fmt.Sprintf("dropped=%d", 500-maxStderrRate); !strings.Contains(text, want) {
			t.Errorf("the log does not say %s", want)
		}
	})
}

// TestProcessesEnd proves that closing ends the processes and fails what is
// under way.
func TestProcessesEnd(t *testing.T) {
	t.Parallel()
	r := newProcessRig(t, linkOptions{})
	_, n := r.pid(t)
	lost := make(chan error, 1)
	go func() {
		_, _, err := r.call(t.Context(), verbSend, "hang", "")
		lost <- err
	}()
	r.log.await("I hang")
	r.close()
	if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is there after close: %v", n, err)
	}
	wantLinkError(t, <-lost, bridge.Lost, parley.CodeAgentUnavailable)
	_, _, err := r.call(t.Context(), verbSend, "echo", "")
	wantLinkError(t, err, bridge.NotSent, parley.CodeAgentUnavailable)
}
