package main

import (
	"encoding/json"
	"net/http"
	"os"
	"sync"
)

// tell prints one line of a program that is watched while it runs; several goroutines do.
func tell(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

var output sync.Mutex

// requests tells of each request and who answered it, when the answer begins.
type requests struct {
	next http.RoundTripper
}

func tellRequests(next http.RoundTripper) http.RoundTripper {
	return requests{next}
}

func (r requests) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	line := map[string]any{"request": request.Method, "path": request.URL.Path, "query": request.URL.RawQuery}
	if err != nil {
		line["error"] = err.Error()
	} else {
		line["status"] = response.StatusCode
		line["cacheStatus"] = response.Header.Get("Cache-Status")
	}
	tell(line)
	return response, err
}
