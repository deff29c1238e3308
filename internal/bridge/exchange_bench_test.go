package bridge_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// rawAgent answers every request on loopback with the same bytes and does as
// little as it can, so that a benchmark measures the client.
func rawAgent(tb testing.TB, body []byte) string {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	response := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + string(body))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go rawServe(c, response)
		}
	}()
	return "http://" + l.Addr().String() + "/run"
}

func rawServe(c net.Conn, response []byte) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		length := 0
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := r.Discard(length); err != nil {
			return
		}
		if _, err := c.Write(response); err != nil {
			return
		}
	}
}

func benchAgent(url string) (parley.Task, parley.Agent) {
	return parley.Task{ID: "run-1.ask.1", CorrelationID: "corr-1"}, parley.Agent{
		Name: "a", URL: url, Timeout: 30 * time.Second,
		Auth: parley.Auth{Type: parley.AuthBearer}, Credential: parley.NewSecret([]byte("token")),
	}
}

// plainPost is what a careful program does with http.Client for the same.
func plainPost(ctx context.Context, c *http.Client, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "parley/dev")
	req.Header.Set("X-Correlation-ID", "corr-1")
	req.Header.Set("Authorization", "Bearer token")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return err
}

// cpuPerOp reports the processor time of the process, which neighbours on a busy
// machine disturb less than the time on the wall.
func cpuPerOp(b *testing.B) (done func()) {
	b.Helper()
	before := cpuTime(b)
	return func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(max(b.N, 1)), "cpu-ns/op") }
}

func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkPost compares an exchange with a plain http.Client, one call after
// another and many at once.
func BenchmarkPost(b *testing.B) {
	body, answer := bytes.Repeat([]byte("a"), 400), bytes.Repeat([]byte("b"), 1000)
	url := rawAgent(b, answer)
	task, agent := benchAgent(url)
	x := bridge.NewExchange(bridge.ExchangeConfig{Egress: bridge.Egress{Loopback: true}})
	b.Cleanup(x.Close)
	tr := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	b.Cleanup(tr.CloseIdleConnections)
	plain := &http.Client{Transport: tr}
	for _, c := range []struct {
		name string
		post func(context.Context) error
	}{
		{"exchange", func(ctx context.Context) error { _, err := x.Post(ctx, task, agent, body); return err }},
		{"plain", func(ctx context.Context) error { return plainPost(ctx, plain, url, body) }},
	} {
		b.Run("one/"+c.name, func(b *testing.B) {
			defer cpuPerOp(b)()
			b.ReportAllocs()
			for b.Loop() {
				if err := c.post(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("many/"+c.name, func(b *testing.B) {
			defer cpuPerOp(b)()
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.post(context.Background()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
