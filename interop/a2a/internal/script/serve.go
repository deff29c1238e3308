package script

import (
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
)

// Options are how a test agent is started.
type Options struct {
	// Dual: speak 0.3 too.
	Dual bool
	// NoList: the task store has no authenticator, and so no list.
	NoList bool
	// Public is what the card says instead of our own address.
	Public string

	Log   *Log
	Gates *Gates
	// HTTP and GRPC are where to listen; Own is the URL of HTTP.
	HTTP, GRPC net.Listener
	Own        string
}

// Base is the URL that the card names.
func (o Options) Base() string { return or(o.Public, o.Own) }

// Start reads the flags and listens.
func Start() (Options, error) {
	o := Options{Gates: new(Gates), Log: new(Log)}
	listen := flag.String("listen", "127.0.0.1:0", "`address` of HTTP")
	grpc := flag.String("grpc", "127.0.0.1:0", "`address` of gRPC")
	flag.StringVar(&o.Log.Path, "log", "", "`file` of the executions")
	flag.StringVar(&o.Public, "public", "", "`URL` that the card names")
	flag.BoolVar(&o.Dual, "dual", false, "speak 0.3 too")
	flag.BoolVar(&o.NoList, "no-list", false, "list no tasks")
	flag.Parse()
	f, err := os.OpenFile(o.Log.Path, os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return o, err
	}
	_ = f.Close()
	if o.HTTP, err = net.Listen("tcp", *listen); err != nil {
		return o, err
	}
	if o.GRPC, err = net.Listen("tcp", *grpc); err != nil {
		return o, err
	}
	o.Own = "http://" + o.HTTP.Addr().String()
	return o, nil
}

// Serve serves mux and what belongs to the tests and to no protocol, and says
// where everything is. It ends when standard input does.
func (o Options) Serve(mux *http.ServeMux, where map[string]string) error {
	mux.HandleFunc("GET /log", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, o.Log.Path) })
	mux.HandleFunc("POST /release", func(w http.ResponseWriter, r *http.Request) {
		o.Gates.Open(r.URL.Query().Get("key"))
	})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	where["url"] = o.Own
	if err := json.NewEncoder(os.Stdout).Encode(where); err != nil {
		return err
	}
	return http.Serve(o.HTTP, mux)
}
