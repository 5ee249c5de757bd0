// plotly draws a chart as soon as it is read, before its neighbours make it narrower.
for (const chart of document.querySelectorAll(".plotly-graph-div")) Plotly.Plots.resize(chart);
