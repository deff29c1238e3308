package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// apiPrefix is where the REST interface is.
const apiPrefix = "/api/v1"

// maxShownLine bounds a line that is made safe for a terminal, in bytes.
const maxShownLine = 64 << 10

// apiFlags are those of api.
type apiFlags struct {
	data    string
	given   bool
	headers []string
}

func newAPICommand(a *app) *cobra.Command {
	var f apiFlags
	cmd := &cobra.Command{
		Use:   "api METHOD PATH",
		Short: "Send one request to the server's REST interface",
		Long: `Send one request with the key of the server, and print the body of the answer as
it comes; a stream of events goes on until it ends or is interrupted. On a
terminal, and with -o, an answer of JSON is printed in lines. An answer that
refuses is an error, with the exit code that it has elsewhere.

PATH is below /api/v1, as in /runs?limit=2, or whole, as in /api/v1/runs, /healthz
and /openapi.json, which describes them all. It is no URL: the key goes to the
server of --url, --context or PARLEY_URL, and nowhere else.

--data is sent as JSON; with a header Content-Type of another kind, as it is.`,
		Example: `  parley api GET '/runs?limit=2'
  parley api POST /workflows/hello/execute --data '{"input_data": {"name": "Ada"}}' --header Prefer=wait=30
  parley api POST /workflows --data @hello.yaml --header Content-Type=application/yaml
  parley api GET /runs/RUN/events --header Accept=text/event-stream`,
		Args: need("METHOD", "PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = cmd.Flags().Changed("data")
			return a.api(cmd.Context(), args, f)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return apiMethods(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "body: JSON, @FILE, or - for standard input; at most 64 MiB")
	fl.StringArrayVar(&f.headers, "header", nil, "header of the request: name=value (may be given several times)")
	return cmd
}

// apiMethods are those that the interface has.
func apiMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
}

func (a *app) api(ctx context.Context, args []string, f apiFlags) error {
	r, err := a.apiRequest(args[0], args[1], f)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	resp, err := c.Send(ctx, r)
	if err != nil {
		return noSuchPath(err)
	}
	defer resp.Body.Close()
	return a.answer(resp)
}

// noSuchPath adds to an error about a path that there is not where the paths stand: the
// server says no more of it than the existing platform does.
func noSuchPath(err error) error {
	f := classify(err)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code == parley.CodeNotFound && refused.Text() == http.StatusText(http.StatusNotFound) && f.hint == "" {
		return f.withHint("there is no such path: parley api GET /openapi.json describes them all")
	}
	return err
}

// apiRequest reads the command line.
func (a *app) apiRequest(method, path string, f apiFlags) (client.Request, error) {
	r := client.Request{Method: strings.ToUpper(method)}
	if !slices.Contains(apiMethods(), r.Method) {
		u := usagef("METHOD %q: the methods are %s", method, strings.Join(apiMethods(), ", "))
		return r, u.withHint("%s", didYouMean(method, apiMethods()))
	}
	var err error
	if r.Path, err = apiPath(path); err != nil {
		return r, err
	}
	if r.Header, err = apiHeader(f.headers); err != nil {
		return r, err
	}
	if !f.given {
		return r, nil
	}
	if r.Method == http.MethodGet {
		return r, usagef("GET takes no --data").withHint("what narrows a list is in the PATH: '/runs?status=FAILED'")
	}
	r.Body, err = a.apiBody(f.data, r.Header.Get("Content-Type"))
	return r, err
}

// apiPath gives the whole path. What could name another server is refused: the key
// must not go there.
func apiPath(path string) (string, error) {
	const hint = "such as '/runs?limit=2'; name the server with --url, --context or PARLEY_URL"
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		// The text is not repeated: a URL may hold a password.
		return "", usagef(`PATH must begin with one "/": it is a path of the server, and no URL`).withHint(hint)
	}
	bare, _, _ := strings.Cut(path, "?")
	if bare == apiPrefix || strings.HasPrefix(bare, "/api/") || slices.Contains(systemPaths(), bare) {
		return path, nil
	}
	return apiPrefix + path, nil
}

// systemPaths are those of the server that are not below /api.
func systemPaths() []string {
	return []string{"/", "/health", "/health/ready", "/healthz", "/readyz", "/metrics", "/openapi.json"}
}

// apiHeader reads --header.
func apiHeader(list []string) (http.Header, error) {
	h := http.Header{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, usagef("--header: it must be name=value, on one line").withHint("such as --header Accept=text/event-stream")
		}
		switch name = http.CanonicalHeaderKey(name); name {
		case "Authorization":
			return nil, usagef("--header %s: the key is given with --key, --context or PARLEY_KEY", name)
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Upgrade":
			return nil, usagef("--header %s: it follows from the request, and cannot be set", name)
		}
		h.Add(name, value)
	}
	return h, nil
}

// apiBody reads --data: JSON is looked at before it is sent, anything else is not.
func (a *app) apiBody(text, contentType string) ([]byte, error) {
	if text == "" {
		return nil, usagef("--data is empty").withHint("an object without members is '{}'")
	}
	if contentType == "" || isJSON(contentType) {
		return a.readValue("--data", text)
	}
	b, err := []byte(text), error(nil)
	switch {
	case text == "-":
		b, err = readAll(a.stdin, "standard input", maxInput)
	case strings.HasPrefix(text, "@"):
		b, err = readFile(a.path(text[1:]), maxInput)
	}
	if err != nil {
		return nil, usagef("--data: %v", err)
	}
	return b, nil
}

// isJSON reports whether a media type is JSON, or made of it.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// answer prints the body: as it came, unless it is for people, or in a format that
// was asked for.
func (a *app) answer(resp *client.Response) error {
	_, tty := a.terminal(a.stdout)
	if isJSON(resp.Header.Get("Content-Type")) && (tty || !a.human()) {
		return a.answerJSON(resp.Body, tty)
	}
	if tty {
		return a.answerLines(resp.Body)
	}
	return a.copyOut(resp.Body)
}

// copyOut passes bytes on, as soon as they are there.
func (a *app) copyOut(body io.Reader) error {
	_, err := io.Copy(a.stdout, body)
	return err
}

// answerJSON prints JSON in the format of -o, and in lines on a terminal.
func (a *app) answerJSON(body io.Reader, tty bool) error {
	b, err := io.ReadAll(io.LimitReader(body, client.MaxBody+1))
	switch {
	case err != nil:
		return err
	case len(b) > client.MaxBody:
		return (&failure{exit: exitFailed, code: parley.CodeLimit, text: fmt.Sprintf("the answer is longer than %d bytes", client.MaxBody)}).
			withHint("it can be written to a file as it comes: > FILE, without -o")
	case len(bytes.TrimSpace(b)) == 0:
		return nil
	case !json.Valid(b):
		return &failure{exit: exitFailed, code: parley.CodeInternal, text: "the server calls its answer JSON, and it is none"}
	}
	if !a.human() {
		return a.data(json.RawMessage(b))
	}
	if tty {
		b = harmless(b)
	}
	_, err = a.stdout.Write(append(bytes.TrimRight(indent(b), "\n"), '\n'))
	return err
}

// answerLines prints text on a terminal, a line as soon as it is whole, without what
// could steer the terminal.
func (a *app) answerLines(body io.Reader) error {
	r := bufio.NewReaderSize(body, maxShownLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			text, whole := strings.CutSuffix(string(line), "\n")
			if whole {
				text = strings.TrimSuffix(text, "\r") + "\n"
			}
			if _, e := io.WriteString(a.stdout, cleanLines(text)); e != nil {
				return e
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
