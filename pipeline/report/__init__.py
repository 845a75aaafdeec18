"""What an audit leaves: tables as Parquet, a verdict as JSON, a report as one HTML file."""
