package rpcdial

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley/jsonrpc/rpchttp"
)

// oneConn is a listener that has one connection.
type oneConn struct {
	net.Listener
	conns chan net.Conn
}

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (oneConn) Close() error { return nil }

// TestWebServerSlowBody: whoever sends half a message and then nothing holds no
// connection of a server for http URLs for ever.
func TestWebServerSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := rpchttp.Handler(rpchttp.ServerConfig{})
		srv := webServer("/rpc", h)
		client, server := net.Pipe()
		conns := make(chan net.Conn, 1)
		conns <- server
		close(conns)
		go srv.Serve(oneConn{conns: conns})
		begin := time.Now()
		go func() {
			time.Sleep(time.Hour)
			client.Close()
		}()
		io.WriteString(client, "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		answer, _ := io.ReadAll(client)
		if took := time.Since(begin); took > time.Minute || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
			t.Errorf("after %v: %.100s", took, answer)
		}
		client.Close()
		h.Close()
		srv.Close()
		time.Sleep(time.Hour)
	})
}
